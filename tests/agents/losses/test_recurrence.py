"""The backward recurrence against a loop over numbers."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.recurrence import backward_sum


def by_loop(x, decay):
    y = np.zeros((len(x) + 1, *x.shape[1:]))
    for t in reversed(range(len(x))):
        y[t] = x[t] + decay[t] * y[t + 1]
    return y[:-1]


@pytest.mark.parametrize("shape", [(1,), (7,), (1, 3), (6, 4), (5, 2, 3)])
def test_equals_a_loop(shape):
    x, decay = np.random.default_rng(0).normal(size=(2, *shape))
    y = backward_sum(x, decay)
    assert y.dtype == tf.float64 and y.shape == shape
    np.testing.assert_allclose(y, by_loop(x, decay), atol=1e-12)


def test_by_hand():
    np.testing.assert_allclose(backward_sum([1.0, 2.0, 4.0], [0.5, 0.25, 9.0]), [1 + 0.5 * 3, 2 + 0.25 * 4, 4])


def test_a_sum_ends_where_the_decay_is_zero():
    decay = np.array([0.9, 0.0, 0.9])
    before, after = (backward_sum(np.array([1.0, 2.0, last]), decay).numpy() for last in (3.0, 300.0))
    np.testing.assert_array_equal(before[:2], after[:2])
    np.testing.assert_allclose(before[:2], [1 + 0.9 * 2, 2])


def test_gradients_are_the_products_of_the_decays():
    x, decay = tf.constant([1.0, 2.0, 4.0]), tf.constant([0.5, 0.25, 9.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        first = backward_sum(x, decay)[0]
    np.testing.assert_allclose(tape.gradient(first, x), [1, 0.5, 0.5 * 0.25])


def test_only_the_length_must_be_known_in_a_graph():
    x, decay = np.random.default_rng(0).normal(size=(2, 5, 4))
    spec = tf.TensorSpec((5, None), tf.float64)
    in_graph = tf.function(backward_sum, input_signature=(spec, spec), autograph=False)
    np.testing.assert_allclose(in_graph(x, decay), by_loop(x, decay), atol=1e-12)
    spec = tf.TensorSpec((None, 4), tf.float64)
    with pytest.raises(ValueError, match="the length of the sequence must be known"):
        tf.function(backward_sum, input_signature=(spec, spec), autograph=False).get_concrete_function()


def test_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"same shape: x_t \(3, 2\), decay_t \(3,\)"):
        backward_sum(np.zeros((3, 2)), np.zeros(3))
