"""Lossless conversion of numbers to a tensor's dtype."""

from typing import Any

import numpy as np
import tensorflow as tf


def as_dtype(x: Any, dtype: Any) -> tf.Tensor:
    """Converts `x`, a number, an array or a tensor, to a tensor of `dtype`.

    `tf.cast` alone converts a Python number to float32 before float64, which loses half of its digits.
    """
    return tf.cast(x if tf.is_tensor(x) else np.asarray(x), dtype)
