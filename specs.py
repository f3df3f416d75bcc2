"""Environment specs (dm_env) and the TensorFlow specs that follow from them."""

from typing import Any, NamedTuple

import numpy as np
import tree
from dm_env import specs

from .data import Nest


class EnvironmentSpec(NamedTuple):
    """What one environment (not a batch of them) takes and gives."""

    observation: Nest
    """Nest of `dm_env.specs.Array`; bounds are kept where the environment has them."""
    action: Any
    """`dm_env.specs.DiscreteArray`, `dm_env.specs.BoundedArray`, or a nest of them."""


def tensor_spec(spec: Nest, leading: tuple[int | None, ...] = ()) -> Nest:
    """A nest of dm_env specs as `tf.TensorSpec`, with the axes `leading` put in front."""
    import tensorflow as tf  # Checking a spec must not cost the import of TensorFlow.

    return tree.map_structure(lambda leaf: tf.TensorSpec((*leading, *leaf.shape), leaf.dtype), spec)


def add_leading(spec: Nest, *leading: int | None) -> Nest:
    """A nest of `tf.TensorSpec` with the axes `leading` put in front."""
    import tensorflow as tf

    return tree.map_structure(lambda leaf: tf.TensorSpec((*leading, *leaf.shape), leaf.dtype), spec)


def zeros(spec: Nest, *leading: int) -> Nest:
    """NumPy zeros for a nest of dm_env specs or `tf.TensorSpec`, with the axes `leading` put in front."""
    return tree.map_structure(lambda leaf: np.zeros((*leading, *leaf.shape), _numpy_dtype(leaf.dtype)), spec)


def describe(spec: Nest) -> str:
    """A nest of specs in a few words, for messages: `float32(4,)`, `int64 0..1`."""

    def leaf_text(leaf: Any) -> str:
        if isinstance(leaf, specs.DiscreteArray):
            return f"{leaf.num_values} discrete actions"
        return f"{np.dtype(leaf.dtype).name}{tuple(leaf.shape)}"

    return ", ".join(leaf_text(leaf) for leaf in tree.flatten(spec))


def _numpy_dtype(dtype: Any) -> Any:
    return getattr(dtype, "as_numpy_dtype", dtype)
