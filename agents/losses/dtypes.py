"""Numbers in the dtype of the tensors that they meet."""

from typing import Any

import numpy as np
import tensorflow as tf


def as_dtype(x: Any, dtype: Any) -> tf.Tensor:
    """`x`, a number, an array or a tensor, as a tensor of `dtype`.

    `tf.cast` makes a Python number float32 on the way to float64, which costs it half of its digits.
    """
    return tf.cast(x if tf.is_tensor(x) else np.asarray(x), dtype)
