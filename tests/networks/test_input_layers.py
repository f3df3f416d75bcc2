"""A network computes the same after the statistics of its observations have moved."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.networks.factory import policy_value_network, q_network
from callboard.networks.input_layers import keep_outputs
from callboard.networks.network import Inputs
from callboard.specs import EnvironmentSpec

_DISCRETE = specs.DiscreteArray(3)
_BOX = specs.BoundedArray((2,), np.float32, -1.0, 1.0)
_VECTOR = specs.Array((4,), np.float32)
_NEST = {"place": _VECTOR, "room": specs.DiscreteArray(3), "speed": specs.Array((2, 1), np.float32)}
_MASKED = {"action_mask": specs.BoundedArray((3,), np.int8, 0, 1), "observation": _VECTOR}


def _network(observation, action=_DISCRETE, **options):
    return policy_value_network(EnvironmentSpec(observation, action), normalize_observations=True, **options)


NETWORKS = {
    "layers of the head": lambda: _network(_VECTOR, hidden_sizes=(), head_sizes=(8, 8)),
    "layers of the torso": lambda: _network(_NEST, hidden_sizes=(6,)),
    "linear": lambda: _network(_VECTOR, _BOX, hidden_sizes=()),
    "separate": lambda: _network(_NEST, _BOX, hidden_sizes=(8, 8), shared=False, layer_norm=True),
    "an asymmetric critic": lambda: _network(
        {**_NEST, "state": specs.Array((3,), np.float32)}, shared=False, critic_state="state"
    ),
    "a mask": lambda: _network(_MASKED, hidden_sizes=(), head_sizes=(8,)),
    "a memory": lambda: _network(_VECTOR, core="lstm", hidden_sizes=(8,), lstm_size=4),
    "parts": lambda: _network(_VECTOR, (_DISCRETE, _BOX), hidden_sizes=(), head_sizes=(4,)),
    "values": lambda: q_network(
        EnvironmentSpec(_NEST, _DISCRETE), hidden_sizes=(), stream_size=8, normalize_observations=True
    ),
}


def _observations(spec, rng, count, scale=1.0, mean=0.0):
    def leaf(one):
        if isinstance(one, specs.DiscreteArray):
            return rng.integers(one.num_values, size=count).astype(one.dtype)
        if one.dtype == np.int8:
            return np.ones((count, *one.shape), np.int8)
        return (mean + scale * rng.normal(size=(count, *one.shape))).astype(np.float32)

    return tf.nest.map_structure(leaf, spec)


def _outputs(network, observation):
    count = len(tf.nest.flatten(observation)[0])
    return network.step(Inputs(observation), network.initial_state(count), tf.ones(count, tf.bool))[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_stay_while_the_statistics_move(name):
    network = NETWORKS[name]()
    rng = np.random.default_rng(0)
    normalizer = network.normalizer
    normalizer.update(_observations(network.spec.observation, rng, 500, 0.1), leading=1)
    seen = _observations(network.spec.observation, rng, 50, 0.2)
    for variable in network.trainable_variables:
        # Output layers begin so small that nothing would show.
        variable.assign(rng.normal(size=variable.shape, scale=0.5).astype(np.float32))
    expected, weights = _outputs(network, seen), [variable.numpy() for variable in network.variables]
    batch = _observations(network.spec.observation, rng, 500, 0.2, 0.1)
    normalizer.update(batch, leading=1)
    with pytest.raises(AssertionError):
        _assert_close(_outputs(network, seen), expected)
    for variable, value in zip(network.variables, weights, strict=True):
        variable.assign(value)
    keep_outputs(network, network.trainable_variables)
    normalizer.update(batch, leading=1)
    _assert_close(_outputs(network, seen), expected)


def test_a_feature_that_was_constant_is_left_alone():
    network = NETWORKS["layers of the head"]()
    normalizer = network.normalizer
    normalizer.update(np.zeros((100, 4), np.float32), leading=1)
    weights = [variable.numpy() for variable in network.trainable_variables]
    keep_outputs(network, network.trainable_variables)
    normalizer.update(np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32), leading=1)
    for variable, expected in zip(network.trainable_variables, weights, strict=True):
        np.testing.assert_array_equal(variable.numpy(), expected)


def _assert_close(given, expected):
    for one, other in zip(tf.nest.flatten(given), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
