"""Networks for action values."""

import contextlib
import itertools

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.factory import q_network
from callboard.networks.network import Inputs
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((3,), np.float32), specs.DiscreteArray(4))
PIXELS = EnvironmentSpec(specs.BoundedArray((36, 40, 4), np.uint8, 0, 255), specs.DiscreteArray(6))


@pytest.mark.slow
@pytest.mark.parametrize(
    "previous_inputs, core, dueling",
    [
        pytest.param(*kind, marks=() if kind in ((False, "none", False), (True, "lstm", True)) else pytest.mark.slow)
        for kind in itertools.product((False, True), ("none", "lstm"), (False, True))
    ],
)
def test_every_kind_of_network(dueling, core, previous_inputs):
    network = q_network(
        SPEC, core=core, hidden_sizes=(8,), lstm_size=6, dueling=dueling, previous_inputs=previous_inputs
    )
    assert len(network.trainable_variables) == 2 + (3 if core == "lstm" else 0) + (4 if dueling else 2)
    rng = np.random.default_rng(0)
    inputs = Inputs(rng.normal(size=(5, 2, 3)).astype(np.float32), rng.integers(4, size=(5, 2)), np.ones((5, 2)))
    first = np.zeros((5, 2), bool)
    q, _ = tf.function(network.unroll)(inputs, network.initial_state(2), first)
    assert q.shape == (5, 2, 4) and q.dtype == tf.float32
    state = network.initial_state(2)
    for t in range(5):
        q_t, state = network.step(Inputs(*(part[t] for part in inputs)), state, first[t])
        np.testing.assert_allclose(q_t, q[t], atol=1e-5)
    others, _ = network.unroll(inputs._replace(previous_reward=np.zeros((5, 2))), network.initial_state(2), first)
    assert (np.abs(others - q).max() > 1e-4) == previous_inputs


@pytest.mark.slow("daily")
@pytest.mark.parametrize("torso", ["auto", "nature", "impala"])
def test_pixels(torso):
    network = q_network(PIXELS, torso, stream_size=16)
    q, _ = network.step(Inputs(np.zeros((2, 36, 40, 4), np.uint8)), (), np.zeros(2, bool))
    assert q.shape == (2, 6)


@pytest.mark.parametrize("dueling", [False, True])
def test_float64(dueling):
    tf.keras.backend.set_floatx("float64")
    try:
        network = q_network(SPEC, core="lstm", lstm_size=4, dueling=dueling)
    finally:
        tf.keras.backend.set_floatx("float32")
    q, _ = network.step(Inputs(np.zeros((2, 3), np.float32)), network.initial_state(2), np.zeros(2, bool))
    assert q.dtype == tf.float64


def test_all_variables_exist_after_the_constructor():
    for strategy in (None, tf.distribute.MirroredStrategy(["/cpu:0"])):
        with strategy.scope() if strategy else contextlib.nullcontext():
            network = q_network(SPEC, stream_size=8)
        before = [id(variable) for variable in network.variables]
        network.step(Inputs(np.zeros((2, 3), np.float32)), (), np.zeros(2, bool))
        assert [id(variable) for variable in network.variables] == before and len(before) == 12


def test_values_begin_small_and_different():
    """No action is preferred because of the initial weights, and every action's value depends on the features."""
    q, _ = q_network(SPEC).step(
        Inputs(np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)), (), [False] * 50
    )
    assert 1e-3 < np.abs(q).max() < 10 and np.std(q, axis=1).min() > 1e-5


def test_continuous_actions_are_refused():
    with pytest.raises(CallboardError, match=r"discrete actions, not float32\(3,\)"):
        q_network(EnvironmentSpec(SPEC.observation, specs.BoundedArray((3,), np.float32, -1, 1)))
