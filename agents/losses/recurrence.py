"""Linear recurrences backward in time, used to compute returns and advantages."""

from typing import Any

import tensorflow as tf

from .shapes import check_same_shape


def backward_sum(x_t: Any, decay_t: Any) -> tf.Tensor:
    """Computes y_t = x_t + decay_t * y_{t+1}, with y_T = 0.

    The loop over T is unrolled in the graph.  With two operations per step, it is faster to trace and to run than
    `tf.while_loop` or `tf.scan` at T = 20, and faster to run at any length.

    Args:
      x_t: `[T, ...]`; T must be known.
      decay_t: `[T, ...]`.

    Returns:
      `[T, ...]`.

    Raises:
      ValueError: if the shapes differ or T is not known.
    """
    x_t, decay_t = tf.convert_to_tensor(x_t), tf.convert_to_tensor(decay_t)
    check_same_shape(x_t=x_t, decay_t=decay_t)
    if x_t.shape[0] is None:
        raise ValueError("the length of the sequence must be known when the function is traced")
    terms, decays = tf.unstack(x_t), tf.unstack(decay_t)
    sums = [terms[-1]]
    for t in reversed(range(len(terms) - 1)):
        sums.append(terms[t] + decays[t] * sums[-1])
    return tf.stack(sums[::-1])
