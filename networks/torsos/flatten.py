"""Scaling and flattening of observations and actions into network inputs."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs

from ...data import Nest
from ...specs import MultiDiscreteArray, is_image


def scale(value: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Casts to the compute dtype; uint8 values, taken as pixels, are scaled from 0..255 to 0..1."""
    cast = _cast(value, dtype)
    return cast / 255 if value.dtype == tf.uint8 else cast


def scale_by_bounds(spec: specs.Array, value: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Casts to the compute dtype and scales integers from the bounds of their spec to 0..1.

    Pixels are thus divided by 255.  For 8-bit and 16-bit integers without bounds, the limits of the dtype are used.
    Longer integers without bounds, whose limits stand for infinity, are not scaled.  Floats are not scaled either,
    except in images whose bounds exceed -1..1.

    Args:
      spec: spec of the values.
      value: tensor `[..., *spec.shape]`.
      dtype: dtype of the result.
    """
    low, width = _low_and_width(spec)
    if np.any(low):
        # float32 would round values between large bounds.
        exact = tf.float64 if spec.dtype.itemsize > 2 else dtype
        value = _cast(value, exact) - tf.constant(low, exact)
    value = _cast(value, dtype)
    return value if np.all(width == 1) else value / tf.constant(width, dtype)


def _cast(value: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Casts, also to bfloat16, by operations that have kernels for GPUs: to it there is one for float32 alone."""
    return tf.cast(tf.cast(value, tf.float32) if dtype == tf.bfloat16 else value, dtype)


def _low_and_width(spec: specs.Array) -> tuple[np.ndarray, np.ndarray]:
    """Returns the offset and the divisor that scale values of a spec, as scalars or arrays of the spec's shape."""
    kind, bounded = spec.dtype.kind, isinstance(spec, specs.BoundedArray)
    if kind in "iu" and (bounded or spec.dtype.itemsize <= 2):
        limits = np.iinfo(spec.dtype)
        low, high = (spec.minimum, spec.maximum) if bounded else (limits.min, limits.max)
        # 0 is a bound of unsigned integers, which have no number for minus infinity.
        has_low = (low > limits.min) | (kind == "u")
        is_scaled = (spec.dtype.itemsize <= 2) | (has_low & (high < limits.max))
    elif kind == "f" and bounded and is_image(spec):
        low, high = spec.minimum, spec.maximum
        is_scaled = np.isfinite(low) & np.isfinite(high) & ((low < -1) | (high > 1))
    else:
        return np.zeros(()), np.ones(())
    low, high = np.float64(low), np.float64(high)
    low, width = np.where(is_scaled, low, 0.0), np.where(is_scaled & (high > low), high - low, 1.0)
    return _without_repetition(low), _without_repetition(width)


def _without_repetition(array: np.ndarray) -> np.ndarray:
    """Replaces an array of equal elements by a scalar, which keeps large constants out of the graph."""
    return array.reshape(-1)[0] if array.size and np.ptp(array) == 0 else array


def flat_features(spec: Nest, value: Nest, dtype: Any) -> tf.Tensor:
    """Flattens any nest into one vector per batch element.

    Args:
      spec: nest of dm_env specs, without the batch axis.
      value: nest of tensors `[B, ...]` of the same structure.
      dtype: dtype of the result.

    Returns:
      Tensor `[B, feature_size(spec)]`: the leaves concatenated in the order of `tree.flatten`.  Every discrete choice
      (`DiscreteArray`, `MultiDiscreteArray`) is one-hot; all other leaves are scaled by `scale_by_bounds`.
    """
    flat = tree.map_structure(lambda leaf, tensor: _flat_leaf(leaf, tensor, dtype), spec, value, check_types=False)
    parts = tree.flatten(flat)
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=-1)


def feature_size(spec: Nest) -> int:
    """Returns the length of the vectors that `flat_features` makes."""
    return sum(_leaf_size(leaf) for leaf in tree.flatten(spec))


def _leaf_size(leaf: specs.Array) -> int:
    if isinstance(leaf, specs.DiscreteArray | MultiDiscreteArray):
        return int(np.sum(leaf.num_values))
    return math.prod(leaf.shape)


def _flat_leaf(leaf: specs.Array, tensor: Any, dtype: Any) -> tf.Tensor:
    tensor = tf.convert_to_tensor(tensor)
    if isinstance(leaf, specs.DiscreteArray):
        return tf.one_hot(tensor, leaf.num_values, dtype=dtype)
    if isinstance(leaf, MultiDiscreteArray):
        return _one_hot_parts(tensor, leaf.num_values.ravel(), dtype)
    return tf.reshape(scale_by_bounds(leaf, tensor, dtype), (-1, _leaf_size(leaf)))


def _one_hot_parts(tensor: tf.Tensor, num_values: np.ndarray, dtype: Any) -> tf.Tensor:
    """One-hot encodes choices `[B, ...]` as `[B, sum(num_values)]`, one segment per choice."""
    # int32 would be compared on the CPU, also where there is a GPU.
    choices = tf.reshape(tf.cast(tensor, tf.int64), (-1, len(num_values)))
    choice = np.repeat(np.arange(len(num_values)), num_values)
    first = np.cumsum(num_values) - num_values
    value = np.arange(num_values.sum()) - first[choice]
    return _cast(tf.equal(tf.gather(choices, choice, axis=1), value), dtype)
