"""Observations and actions as flat vectors of floats."""

import math
from typing import Any

import tensorflow as tf
import tree
from dm_env import specs

from ..data import Nest


def scale(value: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Casts to the compute dtype; bytes, which hold pixels, go from 0..255 to 0..1."""
    cast = tf.cast(value, dtype)
    return cast / 255 if value.dtype == tf.uint8 else cast


def flat_features(spec: Nest, value: Nest, dtype: Any) -> tf.Tensor:
    """One vector for each element of the batch, from any nest.

    Args:
      spec: nest of dm_env specs, without the batch axis.
      value: nest of tensors `[B, ...]` of the same structure.
      dtype: of the result.

    Returns:
      Tensor `[B, feature_size(spec)]`: the leaves one after another in the order of `tree.flatten`, numbered choices
      (`DiscreteArray`) one-hot, all others flattened, bytes scaled to 0..1.
    """
    flat = tree.map_structure(lambda leaf, tensor: _flat_leaf(leaf, tensor, dtype), spec, value, check_types=False)
    parts = tree.flatten(flat)
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=-1)


def feature_size(spec: Nest) -> int:
    """The length of the vectors that `flat_features` gives."""
    return sum(_leaf_size(leaf) for leaf in tree.flatten(spec))


def _leaf_size(leaf: specs.Array) -> int:
    return leaf.num_values if isinstance(leaf, specs.DiscreteArray) else math.prod(leaf.shape)


def _flat_leaf(leaf: specs.Array, tensor: Any, dtype: Any) -> tf.Tensor:
    tensor = tf.convert_to_tensor(tensor)
    if isinstance(leaf, specs.DiscreteArray):
        return tf.one_hot(tensor, leaf.num_values, dtype=dtype)
    return tf.reshape(scale(tensor, dtype), (-1, _leaf_size(leaf)))
