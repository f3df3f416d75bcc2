"""Separate networks for policy and value: they share nothing, and have the interface of one."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.factory import gaussian_value_network, make_torso, policy_value_network
from callboard.networks.network import Inputs
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((4,), np.float32), specs.DiscreteArray(3))
BOX = EnvironmentSpec(specs.Array((4,), np.float32), specs.BoundedArray((2,), np.float32, -1, 1))
T, B = 5, 3


def networks():
    sizes = {"hidden_sizes": (8,), "head_sizes": (4,), "lstm_size": 6, "shared": False}
    yield policy_value_network(SPEC, **sizes)
    yield policy_value_network(SPEC, core="gru", normalize_observations=True, **sizes)
    yield gaussian_value_network(BOX, core="lstm", **sizes)


@pytest.mark.parametrize("number", range(3))
def test_each_trains_its_own_variables_and_an_unroll_equals_steps(number):
    network = list(networks())[number]
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
    assert (state == ()) == (number == 0) == (network.state_spec == ())
    assert network.regularization_loss() == 0


def test_both_see_normalized_observations():
    network = list(networks())[1]
    assert network.normalizer is network.policy.normalizer is network.value.normalizer


def test_one_layer_cannot_be_two_torsos():
    with pytest.raises(CallboardError, match="separate networks need a torso each"):
        policy_value_network(SPEC, torso=make_torso(SPEC, "mlp"), shared=False)
