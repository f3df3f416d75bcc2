"""Epsilon-greedy exploration for agents that learn action values."""

import math
from typing import Any

import tensorflow as tf

from ...networks.random_streams import Stream
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

    Of an action of several choices, all are random or all are greedy.

    Args:
      q: `[B, A]`, action values, the lowest where actions are not legal (`networks.legal_actions.mask_illegal`); or
        `[B, K, A]`, those of each choice.
      epsilon: `[B]`, exploration rates; None never explores, and no random numbers are made.
      slot: integers `[B]`, the global index of each environment.
      seed: int `[2]`.  An action depends on its row of `q`, its slot and the seed, not on the rest of the batch.
      dtype: int32 or int64.
      legal: bool of the shape of `q`, at least one in each row; None if all actions are.

    Returns:
      Actions `[B]` or `[B, K]`; ties between greedy actions go to the first.
    """
    q = tf.convert_to_tensor(q)
    check_ranks(3 if q.shape.rank == 3 else 2, q=q)
    greedy = tf.argmax(q, -1, output_type=dtype)
    if epsilon is None:
        return greedy
    epsilon, slot = tf.convert_to_tensor(epsilon), tf.convert_to_tensor(slot)
    choices = q.shape.as_list()[1:-1]
    check_same_shape(q=q[:, 0, 0] if choices else q[:, 0], epsilon=epsilon, slot=slot)
    draws = uniform(seed, Stream.EPSILON_GREEDY, slot, (1 + math.prod(choices),), tf.float64)
    explores = draws[:, 0] < tf.cast(epsilon, tf.float64)
    anything = _uniform_action(draws[:, 1:] if choices else draws[:, 1], q.shape[-1], legal, dtype)
    return tf.where(explores[:, tf.newaxis] if choices else explores, anything, greedy)


def _uniform_action(uniform: tf.Tensor, number: int, legal: tf.Tensor | None, dtype: Any) -> tf.Tensor:
    """Returns a legal action for each number in [0, 1), in the shape of `uniform`."""
    if legal is None:
        return tf.cast(uniform * number, dtype)
    count = tf.cumsum(tf.cast(legal, tf.int32), axis=-1)
    rank = tf.cast(uniform * tf.cast(count[..., -1], tf.float64), tf.int32)
    # The first action with more legal ones up to it than the rank.
    return tf.argmax(count > rank[..., tf.newaxis], axis=-1, output_type=dtype)
