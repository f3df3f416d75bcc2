"""Torsos, cores and heads that a function of the user's makes, with options, and what is refused."""

import sys

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.factory import check_network, policy_value_network, q_network
from callboard.networks.network_settings import PolicyValueNetworkSettings
from callboard.networks.own_parts import check_own_part, make_own_part
from callboard.specs import EnvironmentSpec

VECTOR = specs.Array((4,), np.float32)
SPEC = EnvironmentSpec({"own": VECTOR, "rest": VECTOR}, specs.DiscreteArray(3))
TORSO = "parts_of_the_user:make_wide_torso"


def make_wide_torso(spec, units=5):
    inputs = tree.map_structure(lambda leaf: tf.keras.Input(leaf.shape), spec.observation)
    parts = tree.flatten(inputs)
    joined = parts[0] if len(parts) == 1 else tf.keras.layers.Concatenate()(parts)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(units)(joined))


@pytest.fixture(autouse=True)
def module(monkeypatch):
    monkeypatch.setitem(sys.modules, "parts_of_the_user", sys.modules[__name__])


def test_a_factory_is_called_with_its_options():
    assert make_own_part("torso", TORSO, {"units": 7}, SPEC).output_shape == (None, 7)
    assert check_own_part("torso", TORSO, {}, SPEC) is make_wide_torso


def takes_the_last(spec, units):
    return units.pop()


def test_a_factory_may_change_the_lists_in_its_options(monkeypatch):
    options = {"units": [7, 8]}
    for _ in range(2):
        assert make_own_part("torso", "parts_of_the_user:takes_the_last", options, SPEC) == 8
    assert options == {"units": [7, 8]}


def test_options_reach_the_torso_of_the_whole_or_the_rest_of_the_observation():
    options = {"units": 7}
    for network, inputs in (
        (policy_value_network(SPEC, TORSO, torso_options=options), 8),
        (policy_value_network(SPEC, TORSO, torso_options=options, torsos={"own": "mlp"}), 4),
        (q_network(SPEC, make_wide_torso, torso_options=options), 8),
    ):
        assert (inputs, 7) in [tuple(variable.shape) for variable in network.trainable_variables]


@pytest.mark.parametrize(
    "torso, options, message",
    [
        ("mlp", {"units": 7}, "^torso_options are for a torso package.module:factory, not for mlp$"),
        (TORSO, {"size": 7}, "^torso_options do not fit parts_of_the_user:make_wide_torso: .* 'size'$"),
        ("parts_of_the_user:VECTOR", {}, "^torso 'parts_of_the_user:VECTOR' is not a function but of type Array$"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_a_network_is_built(torso, options, message):
    network = PolicyValueNetworkSettings(
        torso=torso, torso_options=options, hidden_sizes=(), activation="tanh", lstm_size=4, head_sizes=()
    )
    with pytest.raises(CallboardError, match=message):
        if network.problem:
            raise CallboardError(network.problem)
        check_network(SPEC, network)
