"""Epsilon-greedy exploration for agents that learn action values."""

from typing import Any

import tensorflow as tf

from ...networks.stateless_random import uniform
from .shapes import check_ranks, check_same_shape


def epsilon_ladder(slot: Any, slots: int, epsilon: Any = 0.4, alpha: float = 7.0) -> tf.Tensor:
    """Returns a fixed exploration rate per environment: epsilon_i = epsilon^(1 + alpha i / (N - 1)).

    Horgan et al. 2018, section 4.1.

    Args:
      slot: integers `[B]`, i in 0..N-1, the global index of each environment.
      slots: N, the number of environments of all actors.  A single environment has the rate `epsilon`.
      epsilon: rate of slot 0, the largest.
      alpha: exponent; the last slot has the rate epsilon^(1 + alpha).

    Returns:
      float32 `[B]`.
    """
    exponent = 1 + alpha * tf.cast(slot, tf.float32) / max(1, slots - 1)
    return tf.pow(tf.convert_to_tensor(epsilon, tf.float32), exponent)


def epsilon_greedy(
    q: Any, epsilon: Any, slot: Any, seed: Any, dtype: Any = tf.int32, legal: tf.Tensor | None = None
) -> tf.Tensor:
    """Selects a uniformly random legal action with probability epsilon, and the greedy action otherwise.

    Args:
      q: `[B, A]`, action values, the lowest where actions are not legal (`networks.legal_actions.mask_illegal`).
      epsilon: `[B]`, exploration rates.
      slot: integers `[B]`, the global index of each environment.
      seed: int `[2]`.  An action depends on its row of `q`, its slot and the seed, not on the rest of the batch.
      dtype: int32 or int64.
      legal: bool `[B, A]`, at least one in each row; None if all actions are.

    Returns:
      Actions `[B]`; ties between greedy actions go to the first.
    """
    q, epsilon, slot = tf.convert_to_tensor(q), tf.convert_to_tensor(epsilon), tf.convert_to_tensor(slot)
    check_ranks(2, q=q)
    check_same_shape(q=q[:, 0], epsilon=epsilon, slot=slot)
    draws = uniform(seed, slot, (2,), tf.float64)
    explores = draws[:, 0] < tf.cast(epsilon, tf.float64)
    anything = _uniform_action(draws[:, 1], tf.shape(q)[1], legal, dtype)
    return tf.where(explores, anything, tf.argmax(q, axis=-1, output_type=dtype))


def _uniform_action(uniform: tf.Tensor, number: Any, legal: tf.Tensor | None, dtype: Any) -> tf.Tensor:
    """Returns a legal action `[B]` for each number in [0, 1) `[B]`."""
    if legal is None:
        return tf.cast(uniform * tf.cast(number, tf.float64), dtype)
    count = tf.cumsum(tf.cast(legal, tf.int32), axis=-1)
    rank = tf.cast(uniform * tf.cast(count[:, -1], tf.float64), tf.int32)
    # The first action with more legal ones up to it than the rank.
    return tf.argmax(count > rank[:, tf.newaxis], axis=-1, output_type=dtype)
