"""Squashing of values, so that returns of any size can be learned (Pohlen et al. 2018, section 3.2).

R2D2 learns h(Q) in place of Q (Kapturowski et al. 2019, section 2.3).
"""

from typing import Any

import tensorflow as tf

EPSILON = 1e-3
"""The linear part, as in Kapturowski et al. 2019."""


def rescale(x: Any, epsilon: float = EPSILON) -> tf.Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x (Pohlen et al. 2018, section 3.2).

    Args:
      x: any shape.
      epsilon: at least 0; keeps h, and so its inverse, Lipschitz continuous.

    Returns:
      The shape and dtype of `x`.
    """
    x = tf.convert_to_tensor(x)
    # sqrt(|x| + 1) - 1 = |x| / (sqrt(|x| + 1) + 1), which loses no digits where x is small.
    return x / (tf.sqrt(tf.abs(x) + 1) + 1) + epsilon * x


def inverse_rescale(x: Any, epsilon: float = EPSILON) -> tf.Tensor:
    """h^-1(x) = sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1) (proposition A.2).

    Args:
      x: any shape.
      epsilon: at least 0, the one that `rescale` was given.

    Returns:
      The shape and dtype of `x`.
    """
    x = tf.convert_to_tensor(x)
    size = tf.abs(x) + (1 + epsilon)
    # sqrt(1 + z) - 1 = z / (sqrt(1 + z) + 1) again: in float32 the formula as it stands is wrong by 1e-4 near 0.
    root = 2 * size / (tf.sqrt(1 + 4 * epsilon * size) + 1)
    return tf.sign(x) * (root - 1) * (root + 1)
