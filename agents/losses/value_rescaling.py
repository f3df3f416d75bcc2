"""Invertible value rescaling, for returns of any scale (Pohlen et al. 2018, section 3.2).

R2D2 learns h(Q) instead of Q (Kapturowski et al. 2019, section 2.3).
"""

from typing import Any

import tensorflow as tf

EPSILON = 1e-3
"""Coefficient of the linear term, as in Kapturowski et al. 2019."""


def rescale(x: Any, epsilon: float = EPSILON) -> tf.Tensor:
    """Computes h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x (Pohlen et al. 2018, section 3.2).

    Args:
      x: any shape.
      epsilon: at least 0; a positive value makes the inverse of h Lipschitz continuous.

    Returns:
      The shape and dtype of `x`.
    """
    x = tf.convert_to_tensor(x)
    # sqrt(|x| + 1) - 1 = |x| / (sqrt(|x| + 1) + 1), which loses no digits when x is small.
    return x / (tf.sqrt(tf.abs(x) + 1) + 1) + epsilon * x


def inverse_rescale(x: Any, epsilon: float = EPSILON) -> tf.Tensor:
    """Computes the inverse of `rescale` (proposition A.2).

    h^-1(x) = sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)

    Args:
      x: any shape.
      epsilon: at least 0, the same as in `rescale`.

    Returns:
      The shape and dtype of `x`.
    """
    x = tf.convert_to_tensor(x)
    size = tf.abs(x) + (1 + epsilon)
    # sqrt(1 + z) - 1 = z / (sqrt(1 + z) + 1) again: in float32 the literal formula has an error of 1e-4 near 0.
    root = 2 * size / (tf.sqrt(1 + 4 * epsilon * size) + 1)
    return tf.sign(x) * (root - 1) * (root + 1)
