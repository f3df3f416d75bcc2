"""Losses of policies that imitate recorded actions, all of them or the better ones."""

from typing import Any

import tensorflow as tf

from .dtypes import as_dtype
from .shapes import check_alike, where_valid


def imitation_loss(log_prob_t: Any, valid_t: Any, weight_t: Any = None) -> tf.Tensor:
    """Computes -w log pi(a|x): maximum likelihood (Pomerleau 1991), or weighted regression (Peters & Schaal 2007).

    Args:
      log_prob_t: `[...]`, log pi(a|x) of the recorded actions.
      valid_t: bool `[...]`.
      weight_t: `[...]`, w, through which no gradients flow; None for 1.

    Returns:
      `[...]`, 0 where the transition is not valid.
    """
    log_prob_t, valid_t = tf.convert_to_tensor(log_prob_t), tf.convert_to_tensor(valid_t)
    weight_t = tf.ones_like(log_prob_t) if weight_t is None else as_dtype(weight_t, log_prob_t.dtype)
    check_alike(valid_t.shape.rank, log_prob_t=log_prob_t, valid_t=valid_t, weight_t=weight_t)
    return where_valid(valid_t, -tf.stop_gradient(weight_t) * log_prob_t)


def advantage_weights(advantage_t: Any, inverse_temperature: Any, largest: Any) -> tf.Tensor:
    """Computes min(exp(beta A), w): weights of AWR (Peng et al. 2019) and IQL (Kostrikov et al. 2021).

    Args:
      advantage_t: `[...]`, A.
      inverse_temperature: beta, a number; 0 weights all actions equally.
      largest: w, a number.

    Returns:
      `[...]`, through which no gradients flow; finite for any finite advantage.
    """
    advantage_t = tf.convert_to_tensor(advantage_t)
    beta, largest = as_dtype(inverse_temperature, advantage_t.dtype), as_dtype(largest, advantage_t.dtype)
    # The limit is taken before the exponential, which could overflow.
    return tf.stop_gradient(tf.exp(tf.minimum(beta * advantage_t, tf.math.log(largest))))
