"""Nests of tensors in words, for messages."""

import tensorflow as tf

from ..data import Nest
from ..errors import type_text


def tensors_text(value: Nest) -> str:
    """Returns the structure of a nest with the dtypes and shapes of its tensors: `(float32 (4, 2), a NoneType)`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {tensors_text(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(tensors_text, value))})"
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return type_text(value)
    return f"{tf.as_dtype(value.dtype).name} {tf.TensorShape(value.shape)}"
