"""SAC's target and policy loss for discrete actions (Christodoulou 2019, https://arxiv.org/abs/1910.07207).

Expectations over the policy are sums over all actions, so that no action is sampled.  `log_probs` are log pi(.|x) of
all actions, `[B, A]`, as are the critics' values `q1` and `q2`.  The loss of the critics, for the values of the actions
taken, and that of the temperature, for `expected_log_prob`, are those of `soft_actor_critic`.
"""

from typing import Any

import tensorflow as tf

from .dtypes import as_dtype
from .shapes import check_alike, check_ranks, check_same_shape, where_valid


def expected_log_prob(log_probs: Any) -> tf.Tensor:
    """Returns E log pi(a|x), minus the entropy: log-probabilities `[B, A]` give `[B]`.  Minus infinity counts as 0."""
    return _expected(log_probs, log_probs)


def discrete_soft_target(r_t: Any, discount_t: Any, q1_tp1: Any, q2_tp1: Any, log_probs_tp1: Any, alpha: Any) -> Any:
    """Computes r + gamma sum_a pi(a|x') (min_i Q_i(x', a) - alpha log pi(a|x')) (equations (3) and (10)).

    Args:
      r_t: `[B]`, the reward, or the return of an n-step window.
      discount_t: `[B]`, gamma times the environment's discount, or the discount of the window.
      q1_tp1: `[B, A]`, values of the first target critic.
      q2_tp1: `[B, A]`, values of the second target critic.
      log_probs_tp1: `[B, A]`, log pi(.|x').
      alpha: the temperature, a scalar.

    Returns:
      `[B]` in the dtype of `q1_tp1`, through which no gradients flow.
    """
    q1_tp1 = tf.convert_to_tensor(q1_tp1)
    dtype = q1_tp1.dtype
    r_t, discount_t, q2_tp1, log_probs_tp1 = (as_dtype(x, dtype) for x in (r_t, discount_t, q2_tp1, log_probs_tp1))
    check_alike(2, q1_tp1=q1_tp1, q2_tp1=q2_tp1, log_probs_tp1=log_probs_tp1)
    check_ranks(1, r_t=r_t, discount_t=discount_t)
    check_same_shape(q1_tp1=q1_tp1[:, 0], r_t=r_t, discount_t=discount_t)
    value = _expected(log_probs_tp1, tf.minimum(q1_tp1, q2_tp1))
    soft_value = value - as_dtype(alpha, dtype) * expected_log_prob(log_probs_tp1)
    # After a termination there is nothing to bootstrap from, and the next observation may be anything.
    return tf.stop_gradient(r_t + tf.math.multiply_no_nan(soft_value, discount_t))


def discrete_actor_loss(q1_t: Any, q2_t: Any, log_probs_t: Any, alpha: Any, valid_t: Any) -> tf.Tensor:
    """Computes sum_a pi(a|x) (alpha log pi(a|x) - min_i Q_i(x, a)) (equation (12)).

    Args:
      q1_t: `[B, A]`, values of the first critic, through which no gradients flow.
      q2_t: `[B, A]`, values of the second critic, likewise.
      log_probs_t: `[B, A]`, log pi(.|x), through which gradients flow.
      alpha: the temperature, a scalar, through which no gradients flow.
      valid_t: bool `[B]`.

    Returns:
      `[B]` in the dtype of `log_probs_t`, 0 where the transition is not valid.
    """
    log_probs_t, valid_t = tf.convert_to_tensor(log_probs_t), tf.convert_to_tensor(valid_t)
    q1_t, q2_t, alpha = (as_dtype(x, log_probs_t.dtype) for x in (q1_t, q2_t, alpha))
    check_alike(2, log_probs_t=log_probs_t, q1_t=q1_t, q2_t=q2_t)
    check_same_shape(log_probs_t=log_probs_t[:, 0], valid_t=valid_t)
    value = _expected(log_probs_t, tf.stop_gradient(tf.minimum(q1_t, q2_t)))
    return where_valid(valid_t, tf.stop_gradient(alpha) * expected_log_prob(log_probs_t) - value)


def _expected(log_probs: Any, x: Any) -> tf.Tensor:
    """Returns sum_a pi(a) x(a), in which actions of probability 0 have no part, whatever x is there."""
    log_probs = tf.convert_to_tensor(log_probs)
    probability = tf.exp(log_probs)
    possible = probability > 0
    # Selecting before multiplying keeps infinite values out of the gradient, too.
    chosen = tf.where(possible, x, tf.zeros_like(log_probs))
    return tf.reduce_sum(tf.where(possible, probability, tf.zeros_like(probability)) * chosen, axis=-1)
