"""Networks for continuous control: their inputs, outputs and variables."""

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs

from callboard.networks.actor_critics.actor_critic_factory import actor_critic_networks
from callboard.networks.distributions import SquashedGaussian
from callboard.networks.network import Inputs
from callboard.networks.stateless_random import standard_normal
from callboard.specs import EnvironmentSpec

ACTION = specs.BoundedArray((2, 3), np.float32, -2.0, 6.0)
VECTOR = specs.Array((4,), np.float32)
IMAGE = specs.BoundedArray((20, 20, 3), np.uint8, 0, 255)
OBSERVATIONS = {
    "vector": VECTOR,
    "image": IMAGE,
    "both": {"eye": IMAGE, "body": VECTOR},
    "float64": specs.Array((4,), float),
}


def make(observation=VECTOR, **options):
    return actor_critic_networks(EnvironmentSpec(observation, ACTION), **{"hidden_sizes": (16, 16), **options})


def random_observation(spec, number):
    rng = np.random.default_rng(0)
    return tree.map_structure(
        lambda leaf: (rng.integers(0, 256, (number, *leaf.shape)) / (1 if leaf.dtype == np.uint8 else 128)).astype(
            leaf.dtype
        ),
        spec,
    )


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_every_kind_of_observation(name):
    networks = make(OBSERVATIONS[name])
    before = len(networks.variables)
    observation = random_observation(OBSERVATIONS[name], 3)
    policy, _ = networks.policy.step(Inputs(observation), (), np.zeros(3, bool))
    assert isinstance(policy, SquashedGaussian)
    action, log_prob = policy.sample_and_log_prob(standard_normal((0, 1), "noise", np.arange(3), (6,)))
    q1, q2 = networks.critic(observation, action)
    assert action.shape == (3, 6) and log_prob.shape == q1.shape == q2.shape == (3,)
    assert np.abs(q1 - q2).min() > 1e-6, "The critics must begin with weights of their own."
    assert networks.bounds.to_environment(action).shape == (3, 2, 3)
    for one, other in zip(networks.target_critic(observation, action), (q1, q2), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    # Both critics depend on the observation and on the action, and the action's effect depends on the observation.
    shifted = tree.map_structure(lambda leaf: leaf[::-1].copy(), observation)
    for others in (networks.critic(observation, -action), networks.critic(shifted, action)):
        assert np.abs(others[0] - q1).max() > 1e-5 and np.abs(others[1] - q2).max() > 1e-5
    assert len(networks.variables) == before


@pytest.mark.slow("daily")
def test_nothing_is_shared():
    for observation in (VECTOR, IMAGE):
        networks = make(observation)
        parts = networks.policy, networks.critic, networks.target_critic
        groups = [{id(variable) for variable in part.variables} for part in parts] + [{id(networks.log_alpha)}]
        assert sum(map(len, groups)) == len(set.union(*groups)) == len(networks.variables)
        assert len(networks.policy.trainable_variables) == len(groups[0])
        assert len(networks.critic.trainable_variables) == len(groups[1])


def test_no_two_layers_begin_equal():
    kernels = [variable.numpy() for part in (make().policy, make().critic) for variable in part.variables]
    kernels = [kernel for kernel in kernels if kernel.ndim == 2]
    for i, one in enumerate(kernels):
        assert all(one.shape != other.shape or np.abs(one - other).max() > 1e-3 for other in kernels[:i])


def test_gradients_reach_what_they_should():
    networks = make()
    observation = random_observation(VECTOR, 32)
    with tf.GradientTape() as tape:
        policy, _ = networks.policy.step(Inputs(observation), (), np.zeros(32, bool))
        action, log_prob = policy.sample_and_log_prob(standard_normal((0, 1), "noise", np.arange(32), (6,)))
        loss = tf.reduce_sum(networks.alpha * log_prob - tf.minimum(*networks.critic(observation, action)))
    parts = networks.policy.trainable_variables, networks.critic.trainable_variables, [networks.log_alpha]
    for gradient in tree.flatten(tape.gradient(loss, parts)):
        assert np.abs(gradient).max() > 0


def test_the_policy_begins_wide_and_centered():
    policy, _ = make().policy.step(Inputs(random_observation(VECTOR, 50)), (), np.zeros(50, bool))
    assert np.abs(policy.mean).max() < 0.2 and np.abs(policy.log_std).max() < 0.2


def test_temperature():
    np.testing.assert_allclose(make().alpha, 1.0)
    networks = make(temperature=0.2)
    np.testing.assert_allclose(networks.alpha, 0.2, rtol=1e-6)
    assert networks.log_alpha.trainable


def test_float64():
    tf.keras.backend.set_floatx("float64")
    try:
        networks = make()
        assert {variable.dtype for variable in networks.variables} == {tf.float64}
        observation = random_observation(VECTOR, 2)
        policy, _ = networks.policy.step(Inputs(observation), (), np.zeros(2, bool))
        action, log_prob = policy.sample_and_log_prob(standard_normal((0, 1), "noise", np.arange(2), (6,), tf.float64))
        assert log_prob.dtype == networks.critic(observation, action).dtype == networks.alpha.dtype == tf.float64
    finally:
        tf.keras.backend.set_floatx("float32")


@pytest.mark.slow("daily")
def test_checkpoints_hold_everything(tmp_path):
    saved, restored = make(IMAGE), make(IMAGE)
    path = tf.train.Checkpoint(networks=saved).write(str(tmp_path / "networks"))
    tf.train.Checkpoint(networks=restored).read(path).assert_consumed()
    for one, other in zip(saved.variables, restored.variables, strict=True):
        np.testing.assert_array_equal(one, other)
