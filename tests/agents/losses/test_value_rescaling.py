"""h and its inverse against the formulas of the paper, and against each other."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.value_rescaling import inverse_rescale, rescale

X = np.concatenate([-np.logspace(6, -6, 50), [0.0], np.logspace(-6, 6, 50)])


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 0.5])
def test_formulas(epsilon):
    h = np.sign(X) * (np.sqrt(np.abs(X) + 1) - 1) + epsilon * X
    np.testing.assert_allclose(rescale(X, epsilon), h, rtol=1e-5, atol=1e-12)
    root = (np.sqrt(1 + 4 * epsilon * (np.abs(X) + 1 + epsilon)) - 1) / (2 * epsilon)
    np.testing.assert_allclose(inverse_rescale(X, epsilon), np.sign(X) * (root**2 - 1), rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.0])
def test_round_trips(epsilon):
    np.testing.assert_allclose(inverse_rescale(rescale(X, epsilon), epsilon), X, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(rescale(inverse_rescale(X, epsilon), epsilon), X, rtol=1e-9, atol=1e-14)


def test_round_trip_in_float32():
    """The published formula of the inverse gives 0.0999 or so for 0.1 here."""
    x = X.astype(np.float32)
    there_and_back = inverse_rescale(rescale(x))
    assert there_and_back.dtype == tf.float32
    np.testing.assert_allclose(there_and_back, x, rtol=1e-5, atol=1e-6)


def test_by_hand():
    # h(3) = sqrt(4) - 1 + 0.001 * 3, h(-8) = -(sqrt(9) - 1) - 0.001 * 8.
    np.testing.assert_allclose(rescale(np.array([3.0, -8.0, 0.0])), [1.003, -2.008, 0.0])
    np.testing.assert_allclose(inverse_rescale(np.array([1.003, -2.008, 0.0])), [3.0, -8.0, 0.0], atol=1e-12)


def test_it_grows_and_has_a_slope_everywhere():
    x = tf.constant(np.linspace(-5, 5, 101))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = rescale(x)
    slope = tape.gradient(y, x)
    np.testing.assert_allclose(slope, 0.5 / np.sqrt(np.abs(x) + 1) + 1e-3, atol=1e-9)
