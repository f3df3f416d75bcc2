"""Conversion to a dtype keeps all digits."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.dtypes import as_dtype


def test_a_python_number_keeps_the_digits_of_float64():
    converted = as_dtype(0.1, tf.float64)
    assert converted.dtype == tf.float64 and float(converted) == 0.1
    assert float(tf.cast(0.1, tf.float64)) != 0.1, "tf.cast keeps the digits now, so as_dtype is no longer needed"


@pytest.mark.parametrize(
    "x", [[0.1, 2.0], np.array([0.1, 2.0]), tf.constant([0.1, 2.0], tf.float64)], ids=["list", "array", "tensor"]
)
def test_lists_arrays_and_tensors_are_converted(x):
    for dtype in (tf.float64, tf.float32):
        converted = as_dtype(x, dtype)
        assert converted.dtype == dtype
        np.testing.assert_array_equal(converted, np.array([0.1, 2.0], dtype.as_numpy_dtype))


def test_integers_and_flags_become_floats():
    np.testing.assert_array_equal(as_dtype(3, tf.float32), np.float32(3))
    np.testing.assert_array_equal(as_dtype(np.array([True, False]), tf.float32), np.array([1, 0], np.float32))


def test_a_tensor_of_a_graph_is_converted_in_the_graph():
    convert = tf.function(lambda x: as_dtype(x, tf.float64), input_signature=[tf.TensorSpec((None,), tf.float32)])
    np.testing.assert_array_equal(convert(tf.constant([1.5, 2.5])), [1.5, 2.5])
    assert convert(tf.constant([1.5])).dtype == tf.float64
