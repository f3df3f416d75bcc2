"""Shape checks: what they let pass, and the tensors that their errors name."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.shapes import check_alike, check_ranks, check_same_shape, where_valid


def in_graph(function, *specs):
    """Traces a function of tensors whose shapes are only partly known."""
    return tf.function(function, input_signature=specs, autograph=False).get_concrete_function()


def test_tensors_of_another_rank_are_named_and_no_others():
    check_ranks(2, x=tf.zeros((3, 2)), y=tf.zeros((0, 1)))
    with pytest.raises(ValueError) as caught:
        check_ranks(2, x=tf.zeros((3, 2)), y=tf.zeros(3), z=tf.zeros((1, 2, 3)))
    assert str(caught.value) == "expected tensors of rank 2: y has shape (3,), z has shape (1, 2, 3)"


def test_different_shapes_are_named():
    check_same_shape(x=tf.zeros((3, 2)), y=np.ones((3, 2)))
    with pytest.raises(ValueError) as caught:
        check_same_shape(x=tf.zeros((3, 2)), y=tf.zeros((3, 1)))
    assert str(caught.value) == "expected tensors of the same shape: x (3, 2), y (3, 1)"


def test_unknown_shapes_pass():
    anything = tf.TensorSpec(None)
    in_graph(lambda x: check_ranks(2, x=x), anything)
    in_graph(lambda x: check_same_shape(x=x, y=tf.zeros((3, 2))), anything)
    in_graph(lambda x: check_same_shape(x=x, y=tf.zeros((3, 2))), tf.TensorSpec((3, None)))
    with pytest.raises(ValueError, match="same shape"):
        in_graph(lambda x: check_same_shape(x=x, y=tf.zeros((3, 2))), tf.TensorSpec((4, None)))


def test_rank_and_shape_are_checked_together_also_of_lists():
    check_alike(1, x=[1.0, 2.0], y=np.zeros(2))
    with pytest.raises(ValueError, match=r"of rank 2: x has shape \(2,\), y has shape \(2,\)"):
        check_alike(2, x=[1.0, 2.0], y=np.zeros(2))
    with pytest.raises(ValueError, match=r"same shape: x \(2,\), y \(3,\)"):
        check_alike(1, x=[1.0, 2.0], y=np.zeros(3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses_of_invalid_transitions_are_zero_whatever_they_are(dtype):
    loss = where_valid([True, False, False, True], tf.constant([1.5, np.nan, np.inf, -2.0], dtype))
    assert loss.dtype == dtype
    np.testing.assert_array_equal(loss, [1.5, 0, 0, -2])


def test_no_gradient_flows_into_invalid_transitions():
    loss = tf.constant([1.0, np.inf, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(loss)
        total = tf.reduce_sum(where_valid([True, False, True], loss))
    np.testing.assert_array_equal(tape.gradient(total, loss), [1, 0, 1])
