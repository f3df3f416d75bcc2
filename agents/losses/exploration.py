"""How actors that learn action values explore."""

from typing import Any

import tensorflow as tf

from ...networks.stateless_random import uniform
from .shapes import check_ranks, check_same_shape


def epsilon_ladder(slot: Any, slots: int, epsilon: float = 0.4, alpha: float = 7.0) -> tf.Tensor:
    """epsilon_i = epsilon^(1 + alpha i / (N - 1)): each environment explores at a rate of its own, for good.

    Horgan et al. 2018, section 4.1.

    Args:
      slot: integers `[B]`, i in 0..N-1, the global index of each environment.
      slots: N, the environments of all actors.  A single one has the first rate, `epsilon`.
      epsilon: of slot 0, the largest.
      alpha: the last slot has epsilon^(1 + alpha).

    Returns:
      float32 `[B]`.
    """
    exponent = 1 + alpha * tf.cast(slot, tf.float32) / max(1, slots - 1)
    return tf.pow(tf.constant(epsilon, tf.float32), exponent)


def epsilon_greedy(q: Any, epsilon: Any, slot: Any, seed: Any, dtype: Any = tf.int32) -> tf.Tensor:
    """With probability epsilon any action, each as likely as the others, and otherwise the best.

    Args:
      q: `[B, A]`.
      epsilon: `[B]`.
      slot: integers `[B]`, the global index of each environment.
      seed: int `[2]`.  An action depends on its row of `q`, its slot and the seed, not on the rest of the batch.
      dtype: int32 or int64.

    Returns:
      Actions `[B]`; of equal values the first is the best.
    """
    q, epsilon, slot = tf.convert_to_tensor(q), tf.convert_to_tensor(epsilon), tf.convert_to_tensor(slot)
    check_ranks(2, q=q)
    check_same_shape(q=q[:, 0], epsilon=epsilon, slot=slot)
    draws = uniform(seed, slot, (2,), tf.float64)
    explores = draws[:, 0] < tf.cast(epsilon, tf.float64)
    anything = tf.cast(draws[:, 1] * tf.cast(tf.shape(q)[1], tf.float64), dtype)
    return tf.where(explores, anything, tf.argmax(q, axis=-1, output_type=dtype))
