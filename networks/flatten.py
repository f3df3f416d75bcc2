"""What networks see of observations and actions: scaled floats, and flat vectors of them."""

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs

from ..data import Nest
from ..specs import MultiDiscreteArray, is_image


def scale(value: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Casts to the compute dtype; bytes, which hold pixels, go from 0..255 to 0..1."""
    cast = tf.cast(value, dtype)
    return cast / 255 if value.dtype == tf.uint8 else cast


def scale_by_bounds(spec: specs.Array, value: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Casts to the compute dtype; integers go from the bounds of their spec to 0..1, so that pixels are divided by 255.

    Integers of 8 and 16 bits without bounds have those of their type.  Longer ones without bounds, whose limits stand
    in for infinity, are not scaled, and floats neither, unless they are the pixels of an image: one whose bounds lie
    outside of -1..1.

    Args:
      spec: of the values.
      value: tensor `[..., *spec.shape]`.
      dtype: of the result.
    """
    low, width = _low_and_width(spec)
    if np.any(low):
        # float32 would round what lies between large bounds.
        exact = tf.float64 if spec.dtype.itemsize > 2 else dtype
        value = tf.cast(value, exact) - tf.cast(low, exact)
    value = tf.cast(value, dtype)
    return value if np.all(width == 1) else value / tf.cast(width, dtype)


def _low_and_width(spec: specs.Array) -> tuple[np.ndarray, np.ndarray]:
    """What is subtracted from values of a spec, and what they are divided by: scalars or arrays of the spec's shape."""
    kind, bounded = spec.dtype.kind, isinstance(spec, specs.BoundedArray)
    if kind in "iu" and (bounded or spec.dtype.itemsize <= 2):
        limits = np.iinfo(spec.dtype)
        low, high = (spec.minimum, spec.maximum) if bounded else (limits.min, limits.max)
        is_scaled = (spec.dtype.itemsize <= 2) | ((low > limits.min) & (high < limits.max))
    elif kind == "f" and bounded and is_image(spec):
        low, high = spec.minimum, spec.maximum
        is_scaled = np.isfinite(low) & np.isfinite(high) & ((low < -1) | (high > 1))
    else:
        return np.zeros(()), np.ones(())
    low, high = np.float64(low), np.float64(high)
    low, width = np.where(is_scaled, low, 0.0), np.where(is_scaled & (high > low), high - low, 1.0)
    return _without_repetition(low), _without_repetition(width)


def _without_repetition(array: np.ndarray) -> np.ndarray:
    """A scalar where all elements are the same, which takes no room in a graph."""
    return array.reshape(-1)[0] if array.size and np.ptp(array) == 0 else array


def flat_features(spec: Nest, value: Nest, dtype: Any) -> tf.Tensor:
    """One vector for each element of the batch, from any nest.

    Args:
      spec: nest of dm_env specs, without the batch axis.
      value: nest of tensors `[B, ...]` of the same structure.
      dtype: of the result.

    Returns:
      Tensor `[B, feature_size(spec)]`: the leaves one after another in the order of `tree.flatten`; choices
      (`DiscreteArray`, `MultiDiscreteArray`) one-hot, each by itself; all others flattened, `scale_by_bounds`.
    """
    flat = tree.map_structure(lambda leaf, tensor: _flat_leaf(leaf, tensor, dtype), spec, value, check_types=False)
    parts = tree.flatten(flat)
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=-1)


def feature_size(spec: Nest) -> int:
    """The length of the vectors that `flat_features` gives."""
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
    """Choices `[B, ...]` as `[B, sum(num_values)]`: for each a 1 among as many zeros as it has other values."""
    choices = tf.reshape(tensor, (-1, len(num_values)))
    choice = np.repeat(np.arange(len(num_values)), num_values)
    first = np.cumsum(num_values) - num_values
    value = np.arange(num_values.sum()) - first[choice]
    return tf.cast(tf.equal(tf.gather(choices, choice, axis=1), tf.cast(value, choices.dtype)), dtype)
