"""Paths of weights, in memory and in checkpoints."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs

from callboard.networks.checkpoint_paths import saved_weights_by_path, weights_by_path
from callboard.networks.factory import policy_value_network
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.DiscreteArray(2))


@pytest.fixture(scope="module")
def network():
    return policy_value_network(SPEC, hidden_sizes=(4,), core="lstm", lstm_size=2)


def test_weights_are_named_by_their_place(network):
    weights = weights_by_path(network)
    assert {id(weight) for weight in weights.values()} == {id(weight) for weight in network.variables}
    assert {"_torso/_layers/0/kernel", "_core/_lstm/recurrent_kernel"} <= set(weights)
    assert weights["_torso/_layers/0/kernel"].shape == (3, 4)


def test_a_checkpoint_has_the_same_names(network, tmp_path):
    # A learner that refers to the networks too must not change their names.
    learner = tf.Module()
    learner.a_copy = network
    path = tf.train.Checkpoint(learner=learner, networks=network).write(str(tmp_path / "learner"))
    saved = saved_weights_by_path(path, "networks")
    weights = weights_by_path(network)
    assert list(saved) == list(weights)
    for name, weight in weights.items():
        np.testing.assert_array_equal(saved[name], weight.numpy())
