"""Target networks, on one device and on two."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.networks.factory import q_network
from callboard.networks.target_update import copy_weights, copy_weights_every, move_weights
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((3,), np.float32), specs.DiscreteArray(4))


@pytest.mark.slow
def test_on_one_device_and_on_two(on_two_devices):
    """In replicas, around them and outside of any strategy, eagerly and in graphs."""
    on_two_devices(pathlib.Path(__file__).with_name("replica_checks.py"), "check_all")


def test_networks():
    online, target = (q_network(SPEC, core="lstm", lstm_size=4) for _ in range(2))
    before = [(one.numpy(), other.numpy()) for one, other in zip(online.variables, target.variables, strict=True)]
    move_weights(online, target, 0.1)
    for (one, other), variable in zip(before, target.variables, strict=True):
        np.testing.assert_allclose(variable, 0.1 * one + 0.9 * other, atol=1e-6)
    copy_weights(online, target)
    for (one, _), unchanged, variable in zip(before, online.variables, target.variables, strict=True):
        np.testing.assert_array_equal(variable, one)
        np.testing.assert_array_equal(unchanged, one)


def test_float64_keeps_its_digits():
    source, target = tf.Module(), tf.Module()
    source.weight, target.weight = tf.Variable(1.0, dtype=tf.float64), tf.Variable(0.0, dtype=tf.float64)
    move_weights(source, target, 0.005)
    np.testing.assert_allclose(target.weight, 0.005, rtol=1e-14)


def test_every_period():
    source, target = tf.Module(), tf.Module()
    source.weight, target.weight = tf.Variable(0.0), tf.Variable(-1.0)
    seen = []
    for step in range(1, 8):
        source.weight.assign(step)
        copy_weights_every(3, step, source, target)
        seen.append(float(target.weight))
    assert seen == [-1, -1, 3, 3, 3, 6, 6]


def test_other_modules_are_refused():
    with pytest.raises(ValueError):
        copy_weights(q_network(SPEC), q_network(SPEC, core="lstm"))
    with pytest.raises(ValueError, match="has shape"):
        copy_weights(q_network(SPEC), q_network(SPEC, hidden_sizes=(128, 64)))
