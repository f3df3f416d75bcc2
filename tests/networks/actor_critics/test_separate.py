"""Separate networks for policy and value: they share nothing, and have the interface of one."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.factory import check_network, make_torso, policy_value_network
from callboard.networks.network import Inputs
from callboard.networks.network_settings import PolicyValueNetworkSettings
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((4,), np.float32), specs.DiscreteArray(3))
BOX = EnvironmentSpec(specs.Array((4,), np.float32), specs.BoundedArray((2,), np.float32, -1, 1))
T, B = 5, 3


SIZES: dict[str, Any] = {"hidden_sizes": (8,), "head_sizes": (4,), "lstm_size": 6, "shared": False}
NETWORKS = {
    "none": lambda: policy_value_network(SPEC, **SIZES),
    "gru": lambda: policy_value_network(SPEC, core="gru", normalize_observations=True, **SIZES),
    "lstm": lambda: policy_value_network(BOX, core="lstm", **SIZES),
}


@pytest.mark.slow("daily")
@pytest.mark.parametrize("core", NETWORKS)
def test_each_trains_its_own_variables_and_an_unroll_equals_steps(core):
    network = NETWORKS[core]()
    observation = tf.constant(np.random.default_rng(0).normal(size=(T, B, 4)), tf.float32)
    first = tf.constant(np.random.default_rng(1).random((T, B)) < 0.3)
    state = network.initial_state(B)
    with tf.GradientTape(persistent=True) as tape:
        outputs, last = network.unroll(Inputs(observation), state, first, training=True)
        policy = tf.reduce_sum(tf.square(outputs[0]))
        value = tf.reduce_sum(tf.square(outputs.value))
    assert outputs.value.shape == (T, B)
    variables = network.trainable_variables
    of_policy = [gradient is not None for gradient in tape.gradient(policy, variables)]
    of_value = [gradient is not None for gradient in tape.gradient(value, variables)]
    assert not any(one and other for one, other in zip(of_policy, of_value, strict=True))
    assert sum(of_policy) + sum(of_value) >= len(variables) - 1  # The standard deviation has no part in the mean.
    assert len({id(variable) for variable in variables}) == len(variables)
    for t in range(T):
        step, state = network.step(Inputs(observation[t]), state, first[t])
        for whole, one in zip(outputs, step, strict=True):
            np.testing.assert_allclose(whole[t], one, atol=1e-5)
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), state, last)
    assert (state == ()) == (core == "none") == (network.state_spec == ())
    assert network.regularization_loss() == 0


def test_both_see_normalized_observations():
    network = NETWORKS["gru"]()
    assert network.normalizer is network.policy.normalizer is network.value.normalizer


def test_one_layer_cannot_be_two_torsos():
    with pytest.raises(CallboardError, match="separate networks need a torso each"):
        policy_value_network(SPEC, torso=make_torso(SPEC, "mlp"), shared=False)


STATE = SPEC._replace(observation={"own": SPEC.observation, "state": specs.Array((2,), np.float32)})


def observed(own, state):
    return Inputs({"own": tf.constant(own, tf.float32), "state": tf.constant(state, tf.float32)})


@pytest.mark.slow
@pytest.mark.parametrize(
    "action, normalize",
    [
        (SPEC.action, True),
        (BOX.action, False),
        pytest.param(SPEC.action, False, marks=pytest.mark.slow),
        pytest.param(BOX.action, True, marks=pytest.mark.slow),
    ],
)
def test_only_the_value_sees_the_critics_state(action, normalize):
    sizes = {"core": "gru", "lstm_size": 6, "shared": False, "critic_state": "state"}
    network = policy_value_network(STATE._replace(action=action), normalize_observations=normalize, **sizes)
    rng = np.random.default_rng(0)
    own, state, other = rng.normal(size=(T, B, 4)), rng.normal(size=(T, B, 2)), rng.normal(size=(T, B, 2))
    first = tf.zeros((T, B), tf.bool)
    inputs = observed(own, state)
    if normalize:
        network.normalizer.update(inputs.observation)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs.observation)
        outputs, last = network.unroll(inputs, network.initial_state(B), first)
    assert tape.gradient(outputs[0], inputs.observation)["state"] is None
    assert all(np.any(leaf) for leaf in tape.gradient(outputs.value, inputs.observation).values())
    changed, _ = network.unroll(observed(own, other), network.initial_state(B), first)
    np.testing.assert_array_equal(changed[0], outputs[0])
    assert np.all(changed.value != outputs.value)
    # The acting network may also be without the state, and has only its own memory.
    acting, memory = network.acting, network.acting.initial_state(B)
    for t in range(T):
        alone, memory = acting.step(Inputs({"own": tf.constant(own[t], tf.float32)}), memory, first[t])
        np.testing.assert_allclose(alone[0], outputs[0][t], atol=1e-6)
        assert alone.value == ()
    np.testing.assert_allclose(memory, last[0], atol=1e-6)


def test_a_network_without_separate_parts_acts_as_a_whole():
    network = policy_value_network(SPEC)
    assert network.acting is network


@pytest.mark.parametrize(
    "observation, problem",
    [
        (SPEC.observation, "the observation is not a dictionary"),
        ({"own": SPEC.observation}, "has the parts 'own': name one of several parts"),
        ({"state": SPEC.observation}, "has the parts 'state': name one of several parts"),
        ({"state": SPEC.observation, "action_mask": SPEC.observation}, "name one of several parts"),
    ],
)
def test_an_observation_without_the_critics_state_is_refused(observation, problem):
    settings = PolicyValueNetworkSettings(
        hidden_sizes=(8,), activation="relu", lstm_size=4, head_sizes=(), shared=False, critic_state="state"
    )
    with pytest.raises(CallboardError, match=f"critic_state is 'state', and .*{problem}"):
        check_network(SPEC._replace(observation=observation), settings)


def test_a_shared_network_cannot_hide_the_critics_state():
    settings = PolicyValueNetworkSettings(
        hidden_sizes=(8,), activation="relu", lstm_size=4, head_sizes=(), critic_state="state"
    )
    assert settings.problem == "the policy must not see critic_state 'state', so it needs shared: false"
