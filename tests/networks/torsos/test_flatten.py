"""Observations as networks see them: integers by the bounds of their spec, choices one-hot."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs
from gpu_kernels import nodes_of, without_kernel

from callboard.networks.torsos.flatten import feature_size, flat_features, scale_by_bounds
from callboard.specs import MultiDiscreteArray

INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)


@pytest.mark.parametrize(
    ("spec", "values", "expected"),
    [
        (specs.BoundedArray((), np.uint8, 0, 255), [0, 51, 255], [0, 0.2, 1]),
        (specs.Array((), np.uint8), [0, 51, 255], [0, 0.2, 1]),
        (specs.BoundedArray((), np.uint8, 0, 1), [0, 1], [0, 1]),
        (specs.BoundedArray((), np.int32, 0, 1), [0, 1], [0, 1]),
        (specs.BoundedArray((), np.uint8, 3, 13), [3, 8, 13], [0, 0.5, 1]),
        (specs.BoundedArray((2,), np.int8, [-128, 0], 127), [[-128, 127], [127, 0]], [[0, 1], [1, 0]]),
        (specs.BoundedArray((), np.int64, -5, 5), [-5, 0, 5], [0, 0.5, 1]),
        (specs.BoundedArray((), np.int64, 10**9, 10**9 + 4), [10**9 + 1, 10**9 + 4], [0.25, 1]),
        (specs.BoundedArray((2,), np.int32, [0, 3], [10, 3]), [[10, 3], [5, 3]], [[1, 0], [0.5, 0]]),
        (specs.BoundedArray((), np.uint16, 0, 65535), [13107, 65535], [0.2, 1]),
        (specs.BoundedArray((), np.uint32, 0, 100), [0, 50, 100], [0, 0.5, 1]),
        (specs.BoundedArray((), np.uint64, 0, 2**63), [0, 2**62], [0, 0.5]),
        (specs.BoundedArray((2,), np.uint32, [0, 1], [4, 3]), [[2, 2]], [[0.5, 0.5]]),
        # Limits of a type that mean infinity.
        (specs.BoundedArray((), np.int32, INT32.min, INT32.max), [-7, 300], [-7, 300]),
        (specs.BoundedArray((), np.int64, 0, INT64.max), [0, 300], [0, 300]),
        (specs.BoundedArray((2,), np.int32, 0, [100, INT32.max]), [[50, 50]], [[0.5, 50]]),
        (specs.BoundedArray((2,), np.uint32, 0, [100, 2**32 - 1]), [[50, 50]], [[0.5, 50]]),
        (specs.BoundedArray((), np.int32, INT32.min, 5), [-7, 5], [-7, 5]),
        (specs.Array((), np.uint64), [7, 300], [7, 300]),
        (specs.Array((), np.int32), [-7, 300], [-7, 300]),
        (specs.Array((), np.bool_), [False, True], [0, 1]),
        (specs.BoundedArray((), np.float32, 0, 10), [0, 5, 10], [0, 5, 10]),
    ],
)
def test_integers_are_scaled_by_their_bounds(spec, values, expected):
    scaled = scale_by_bounds(spec, tf.constant(values, spec.dtype), tf.float32)
    assert scaled.dtype == tf.float32
    np.testing.assert_allclose(scaled, expected, rtol=1e-6)


@pytest.mark.parametrize(("low", "high", "divided_by"), [(0, 255, 255), (0, 1, 1), (-1, 1, 1), (0, np.inf, 1)])
def test_images_of_floats_are_scaled_where_their_bounds_are_those_of_pixels(low, high, divided_by):
    image = specs.BoundedArray((4, 4, 3), np.float32, low, high)
    values = np.linspace(0, 1, 48, dtype=np.float32).reshape(1, 4, 4, 3)
    np.testing.assert_allclose(scale_by_bounds(image, tf.constant(values), tf.float32), values / divided_by, rtol=1e-6)


def test_choices_are_one_hot_each_by_itself():
    spec = {
        "doors": MultiDiscreteArray([[2, 4], [1, 3]]),
        "mode": specs.DiscreteArray(3),
        "speed": specs.BoundedArray((1,), np.float32, -9, 9),
    }
    value = {
        "doors": np.array([[[1, 3], [0, 0]], [[0, 1], [0, 2]]], np.int32),
        "mode": np.array([2, 0], np.int32),
        "speed": np.array([[7], [-8]], np.float32),
    }
    assert feature_size(spec) == 14
    np.testing.assert_array_equal(
        flat_features(spec, value, tf.float32),
        [[0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 7], [1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 0, -8]],
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32", "int64", "bool", "float32", "float64"])
@pytest.mark.parametrize("computed_in", ["float32", "bfloat16"])
def test_observations_become_features_on_a_gpu(dtype, computed_in):
    dtype = np.dtype(dtype)
    spec = {
        "any": specs.Array((3,), dtype),
        "some": MultiDiscreteArray([2, 3]),
        "one": specs.DiscreteArray(3),
    }
    if dtype.kind in "iu":
        spec["bounded"] = specs.BoundedArray((3,), dtype, [0, 1, 2], 100)
    given = {name: tf.TensorSpec((None, *leaf.shape), leaf.dtype) for name, leaf in spec.items()}
    features = tf.function(lambda value: flat_features(spec, value, computed_in), autograph=False)
    assert without_kernel(nodes_of(features.get_concrete_function(given))) == set()
