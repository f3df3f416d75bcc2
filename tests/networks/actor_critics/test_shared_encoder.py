"""DrQ's networks: policy and critics share an encoder, which the critics' gradient alone trains."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs

from callboard.networks.actor_critics.shared_encoder import shared_encoder_networks
from callboard.networks.distributions import Categorical, SquashedGaussian
from callboard.networks.network import Inputs
from callboard.specs import EnvironmentSpec

IMAGE = dm_specs.BoundedArray((20, 20, 3), np.uint8, 0, 255)
BODY = dm_specs.Array((2,), np.float32)
BOX, CHOICE = dm_specs.BoundedArray((2,), np.float32, -1, 1), dm_specs.DiscreteArray(3)


def observation_of(spec, batch=4):
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (batch, 20, 20, 3)).astype(np.uint8)
    return {"body": rng.normal(size=(batch, 2)).astype(np.float32), "eye": image} if isinstance(spec, dict) else image


@pytest.mark.slow
@pytest.mark.parametrize(
    "observation, action",
    [
        pytest.param(IMAGE, BOX, id="image-continuous"),
        pytest.param(IMAGE, CHOICE, id="image-discrete", marks=pytest.mark.slow),
        pytest.param({"body": BODY, "eye": IMAGE}, BOX, id="both-continuous", marks=pytest.mark.slow),
        pytest.param({"body": BODY, "eye": IMAGE}, CHOICE, id="both-discrete", marks=pytest.mark.slow),
    ],
)
def test_the_encoder_is_shared_and_trained_by_the_critics_alone(observation, action):
    networks = shared_encoder_networks(EnvironmentSpec(observation, action), hidden_sizes=(8,))
    x = observation_of(observation)
    actions = () if action is CHOICE else (np.zeros((4, 2), np.float32),)
    encoder = {id(one) for one in networks.critic.variables} & {id(one) for one in networks.policy.variables}
    assert len(encoder) == 8
    trained_by_policy = {id(one) for one in networks.policy.trainable_variables}
    trained_by_critic = {id(one) for one in networks.critic.trainable_variables}
    assert not encoder & trained_by_policy and encoder <= trained_by_critic
    assert not {id(one) for one in networks.target_critic.variables} & (trained_by_critic | trained_by_policy)
    shared = [one for one in networks.critic.variables if id(one) in encoder]
    with tf.GradientTape(persistent=True) as tape:
        policy, _ = networks.policy.step(Inputs(x), (), np.zeros(4, bool))
        of_policy = tf.reduce_sum(policy.logits if action is CHOICE else policy.mean)
        of_critic = tf.reduce_sum(networks.critic(x, *actions)[0])
    assert isinstance(policy, Categorical if action is CHOICE else SquashedGaussian)
    assert tape.gradient(of_policy, shared) == [None] * 8
    assert all(np.abs(part).max() > 0 for part in tape.gradient(of_critic, shared))
    for one, target in zip(networks.critic(x, *actions), networks.target_critic(x, *actions), strict=True):
        np.testing.assert_allclose(one, target, rtol=1e-5)


def test_filters_and_features_are_those_of_the_settings():
    networks = shared_encoder_networks(
        EnvironmentSpec(IMAGE, BOX), hidden_sizes=(8,), filters=[[4, 5, 2]], image_features=6, precision="bfloat16"
    )
    assert networks.critic(observation_of(IMAGE), np.zeros((4, 2), np.float32)).dtype == tf.float32
    shapes = [tuple(one.shape) for one in networks.policy.variables]
    assert (5, 5, 3, 4) in shapes and (4 * 8 * 8, 6) in shapes and (6, 8) in shapes


def test_the_network_does_not_see_an_action_mask():
    mask = dm_specs.BoundedArray((3,), np.int8, 0, 1)
    spec = EnvironmentSpec({"action_mask": mask, "body": BODY, "eye": IMAGE}, CHOICE)
    networks = shared_encoder_networks(spec, hidden_sizes=(8,))
    x = observation_of(spec.observation)
    values = [networks.critic({**x, "action_mask": np.full((4, 3), seen, np.int8)}) for seen in (0, 1)]
    np.testing.assert_array_equal(values[0], values[1])
