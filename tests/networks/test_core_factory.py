"""Cores and heads made from names, and what is refused."""

import dataclasses
import sys

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.core_factory import make_core, make_own_head
from callboard.networks.factory import check_network, policy_value_network, q_network
from callboard.networks.heads import PolicyValueHead
from callboard.networks.network import Inputs
from callboard.networks.network_settings import PolicyValueNetworkSettings
from callboard.networks.recurrent import FeedForwardCore, GRUCore, LSTMCore
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((4,), np.float32), specs.DiscreteArray(3))


def make_my_core(size, depth=1):
    assert depth == 2
    return LSTMCore(size)


class LateCore(FeedForwardCore):
    """Knows the size of its state once it knows that of the features."""

    def __init__(self, kept=True):
        super().__init__()
        self._kept = kept

    @property
    def state_spec(self):
        return self._spec

    def build(self, feature_size):
        if self._kept:
            self._spec = tf.TensorSpec((feature_size,), tf.float32)

    def initial_state(self, batch_size):
        return tf.zeros((batch_size, 6))


def make_no_core():
    return 3


def make_my_head(spec, hidden):
    return PolicyValueHead(spec.action.num_values, (hidden,))


def make_my_q_head(spec):
    return tf.keras.layers.Dense(spec.action.num_values)


@pytest.fixture(autouse=True)
def module(monkeypatch):
    monkeypatch.setitem(sys.modules, "parts_of_the_user", sys.modules[__name__])


def test_cores_by_name():
    assert isinstance(make_core(), FeedForwardCore)
    assert isinstance(make_core("gru", 3), GRUCore) and make_core("gru", 3).state_spec.shape == (3,)
    assert make_core("lstm", 3).state_spec.cell.shape == (3,)
    own = make_core("parts_of_the_user:make_my_core", core_options={"size": 5, "depth": 2})
    assert own.state_spec.cell.shape == (5,)


@pytest.mark.parametrize(
    "core, options, message",
    [
        ("lstn", {}, "unknown core 'lstn'; did you mean 'lstm'?"),
        ("parts_of_the_user:make_my_cor", {}, "did you mean 'make_my_core'?"),
        ("parts_of_the_user:make_my_core", {"sise": 3}, "core_options do not fit parts_of_the_user:make_my_core: "),
        ("parts_of_the_user:make_no_core", {}, "must return a callboard.networks.recurrent.Core, and int has no "),
        ("parts_of_the_user:SPEC", {}, "is not a function but of type EnvironmentSpec"),
        ("os:system", {}, "is refused"),
    ],
)
def test_wrong_cores_are_refused_in_one_line(core, options, message):
    with pytest.raises(CallboardError, match=message) as caught:
        make_core(core, 3, options)
    assert "\n" not in str(caught.value)


def test_the_state_of_a_core_may_depend_on_the_features():
    core = "parts_of_the_user:LateCore"
    network = policy_value_network(SPEC, core=core, hidden_sizes=(6,))
    assert network.state_spec.shape == (6,)
    with pytest.raises(CallboardError, match="core LateCore has no state_spec after build: set it to "):
        policy_value_network(SPEC, core=core, hidden_sizes=(6,), core_options={"kept": False})


def test_heads_of_the_user_s_own():
    inputs, first = Inputs(np.zeros((2, 4), np.float32)), np.ones(2, bool)
    network = policy_value_network(SPEC, head="parts_of_the_user:make_my_head", head_options={"hidden": 7})
    assert network.step(inputs, (), first)[0].logits.shape == (2, 3)
    assert 7 in [variable.shape[-1] for variable in network.trainable_variables]
    assert q_network(SPEC, head="parts_of_the_user:make_my_q_head").step(inputs, (), first)[0].shape == (2, 3)
    with pytest.raises(CallboardError, match="head_options do not fit parts_of_the_user:make_my_head: "):
        policy_value_network(SPEC, head="parts_of_the_user:make_my_head")
    with pytest.raises(CallboardError, match="'parts_of_the_user:make_nothing' must return a module .* not NoneType"):
        make_own_head("parts_of_the_user:make_nothing", SPEC, {})


def make_nothing(spec):
    return None


def make_five_values(spec):
    return tf.keras.layers.Dense(5)


@pytest.mark.parametrize("network", [policy_value_network, q_network])
def test_a_head_with_other_outputs_is_refused(network):
    missing = r"'value' of its outputs must have the shape \[N\], and is EagerTensor$"
    wrong = r"its output must have the shape \[N, 3\], and is \[2, 5\] for N = 2$"
    message = missing if network is policy_value_network else wrong
    with pytest.raises(CallboardError, match="^head 'parts_of_the_user:make_five_values' does not fit .* " + message):
        network(SPEC, head="parts_of_the_user:make_five_values")


def test_a_core_and_a_head_are_checked_before_they_are_made():
    settings = PolicyValueNetworkSettings(hidden_sizes=(), activation="relu", lstm_size=1, head_sizes=())
    check_network(SPEC, settings)
    check_network(SPEC, dataclasses.replace(settings, core="parts_of_the_user:make_my_core", core_options={"size": 3}))
    for changed, message in (
        ({"core": "no_such_package:core"}, "No module named 'no_such_package'"),
        ({"head": "parts_of_the_user:make_my_head"}, "head_options do not fit"),
        ({"filters": ((8, 3, 1),)}, "filters are for images"),
    ):
        with pytest.raises(CallboardError, match=message):
            check_network(SPEC, dataclasses.replace(settings, **changed))
