"""Expectations over discrete actions, in place of sampled ones, in SAC (Christodoulou 2019).

https://arxiv.org/abs/1910.07207, equations (10) to (12).  With them, the losses are those of `soft_actor_critic`.
"""

from typing import Any

import tensorflow as tf


def expected_log_prob(log_probs: Any) -> tf.Tensor:
    """Returns E log pi(a|x), minus the entropy: log-probabilities `[B, A]` give `[B]`.  Minus infinity counts as 0."""
    return expected_value(log_probs, log_probs)


def expected_value(log_probs: Any, values: Any) -> tf.Tensor:
    """Returns sum_a pi(a|x) Q(x, a), in which actions of probability 0 have no part, whatever their value is.

    Args:
      log_probs: `[..., A]`, log pi(.|x), through which gradients flow.
      values: `[..., A]`, in their dtype; either may have more leading axes.

    Returns:
      `[...]`.
    """
    log_probs = tf.convert_to_tensor(log_probs)
    probability = tf.exp(log_probs)
    possible = probability > 0
    zero = tf.zeros((), log_probs.dtype)
    # Selecting before multiplying keeps infinite values out of the gradient, too.
    chosen = tf.where(possible, values, zero)
    return tf.reduce_sum(tf.where(possible, probability, zero) * chosen, axis=-1)
