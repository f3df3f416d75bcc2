"""Losses of IQL's value and critics (Kostrikov et al. 2021, https://arxiv.org/abs/2110.06169).

Each returns `[B]`.  The learner adds up the elements and divides by the size of the global batch.
"""

from typing import Any

import tensorflow as tf

from .dtypes import as_dtype
from .shapes import check_alike, where_valid


def expectile_loss(value_t: Any, q_t: Any, expectile: Any, valid_t: Any) -> tf.Tensor:
    """Computes |tau - 1(u < 0)| u^2 of u = Q(x, a) - V(x) (equation (5)).

    With tau above 1/2 the value is that of the better recorded actions, without a maximum over actions.

    Args:
      value_t: `[B]`, V(x).
      q_t: `[B]`, Q(x, a) of the recorded action, through which no gradients flow.
      expectile: tau, a number in (0, 1).
      valid_t: bool `[B]`.

    Returns:
      `[B]`, 0 where the transition is not valid.
    """
    value_t, valid_t = tf.convert_to_tensor(value_t), tf.convert_to_tensor(valid_t)
    q_t, expectile = as_dtype(q_t, value_t.dtype), as_dtype(expectile, value_t.dtype)
    check_alike(1, value_t=value_t, q_t=q_t, valid_t=valid_t)
    error_t = tf.stop_gradient(q_t) - value_t
    weight_t = tf.where(error_t < 0, 1 - expectile, expectile)
    return where_valid(valid_t, weight_t * tf.square(error_t))


def state_value_target(r_t: Any, discount_t: Any, value_tp1: Any) -> tf.Tensor:
    """Computes r + gamma V(x') (equation (6)).

    Args:
      r_t: `[B]`, the reward.
      discount_t: `[B]`, gamma times the environment's discount.
      value_tp1: `[B]`, V(x').

    Returns:
      `[B]` in the dtype of `value_tp1`, through which no gradients flow.
    """
    value_tp1 = tf.convert_to_tensor(value_tp1)
    r_t, discount_t = as_dtype(r_t, value_tp1.dtype), as_dtype(discount_t, value_tp1.dtype)
    check_alike(1, value_tp1=value_tp1, r_t=r_t, discount_t=discount_t)
    # After a termination there is nothing to bootstrap from, and the next observation may be anything.
    return tf.stop_gradient(r_t + tf.math.multiply_no_nan(value_tp1, discount_t))
