"""Elementwise losses of SAC (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications").

`alpha` is the temperature, a scalar.  Log-probabilities are those of unit actions in [-1, 1]^D, from
`distributions.SquashedGaussian`.  Each loss returns `[B]`, 0 where the transition is not valid.  The learner adds up
the elements and divides by the size of the global batch.
"""

from typing import Any

import tensorflow as tf

from .dtypes import as_dtype
from .shapes import check_alike, check_ranks, where_valid


def soft_target(r_t: Any, discount_t: Any, q1_tp1: Any, q2_tp1: Any, log_prob_tp1: Any, alpha: Any) -> tf.Tensor:
    """Computes r + gamma (min_i Q_i(x', a') - alpha log pi(a'|x')), a' sampled from pi(.|x') (equations (3) and (5)).

    The minimum of two target critics reduces overestimation (section 6).

    Args:
      r_t: `[B]`, the reward, or the return of an n-step window.
      discount_t: `[B]`, gamma times the environment's discount, or the discount of the window.
      q1_tp1: `[B]`, the first target critic's value of a'.
      q2_tp1: `[B]`, the second target critic's value of a'.
      log_prob_tp1: `[B]`, log pi(a'|x').
      alpha: scalar.

    Returns:
      `[B]` in the dtype of `q1_tp1`, through which no gradients flow.
    """
    q1_tp1 = tf.convert_to_tensor(q1_tp1)
    r_t, discount_t, q2_tp1, log_prob_tp1 = _cast(q1_tp1.dtype, r_t, discount_t, q2_tp1, log_prob_tp1)
    check_alike(1, q1_tp1=q1_tp1, r_t=r_t, discount_t=discount_t, q2_tp1=q2_tp1, log_prob_tp1=log_prob_tp1)
    soft_value = tf.minimum(q1_tp1, q2_tp1) - as_dtype(alpha, q1_tp1.dtype) * log_prob_tp1
    # After a termination there is nothing to bootstrap from, and the next observation may be anything.
    return tf.stop_gradient(r_t + tf.math.multiply_no_nan(soft_value, discount_t))


def critic_loss(q1_t: Any, q2_t: Any, target_t: Any, valid_t: Any) -> tf.Tensor:
    """Computes (Q_1 - target)^2 / 2 + (Q_2 - target)^2 / 2 (equation (5), for both critics).

    Args:
      q1_t: `[B]`, the first critic's value of the action taken.
      q2_t: `[B]`, the second critic's value of the action taken.
      target_t: `[B]`, from `soft_target`, through which no gradients flow.
      valid_t: bool `[B]`.

    Returns:
      `[B]`.
    """
    q1_t, valid_t = tf.convert_to_tensor(q1_t), tf.convert_to_tensor(valid_t)
    q2_t, target_t = _cast(q1_t.dtype, q2_t, target_t)
    target_t = tf.stop_gradient(target_t)
    check_alike(1, q1_t=q1_t, q2_t=q2_t, target_t=target_t, valid_t=valid_t)
    return where_valid(valid_t, (tf.square(q1_t - target_t) + tf.square(q2_t - target_t)) / 2)


def actor_loss(q1_t: Any, q2_t: Any, log_prob_t: Any, alpha: Any, valid_t: Any) -> tf.Tensor:
    """Computes alpha log pi(a|x) - min_i Q_i(x, a), with a sampled by reparameterization (equation (9)).

    Args:
      q1_t: `[B]`, the first critic's value of a.  Gradients flow through a; the learner does not apply those with
        respect to the critics' variables.
      q2_t: `[B]`, the second critic's value of a.
      log_prob_t: `[B]`, log pi(a|x).
      alpha: scalar, through which no gradients flow.
      valid_t: bool `[B]`.

    Returns:
      `[B]`.
    """
    q1_t, valid_t = tf.convert_to_tensor(q1_t), tf.convert_to_tensor(valid_t)
    q2_t, log_prob_t, alpha = _cast(q1_t.dtype, q2_t, log_prob_t, alpha)
    check_alike(1, q1_t=q1_t, q2_t=q2_t, log_prob_t=log_prob_t, valid_t=valid_t)
    return where_valid(valid_t, tf.stop_gradient(alpha) * log_prob_t - tf.minimum(q1_t, q2_t))


def temperature_loss(alpha: Any, log_prob_t: Any, target_entropy: Any, valid_t: Any) -> tf.Tensor:
    """Computes -alpha (log pi(a|x) + H), which raises alpha while the policy's entropy is below H (equation (18)).

    Args:
      alpha: scalar, through which gradients flow; the exponential of a variable, so that it stays positive.
      log_prob_t: `[B]`, log pi(a|x), through which no gradients flow.
      target_entropy: H in nats, a scalar or `[B]`; -D in the paper, for actions of D dimensions (appendix D).
      valid_t: bool `[B]`.

    Returns:
      `[B]` in the dtype of `alpha`.
    """
    alpha, valid_t = tf.convert_to_tensor(alpha), tf.convert_to_tensor(valid_t)
    check_ranks(0, alpha=alpha)
    log_prob_t = tf.stop_gradient(as_dtype(log_prob_t, alpha.dtype))
    check_alike(1, log_prob_t=log_prob_t, valid_t=valid_t)
    return where_valid(valid_t, -alpha * (log_prob_t + as_dtype(target_entropy, alpha.dtype)))


def _cast(dtype: Any, *tensors: Any) -> list[tf.Tensor]:
    return [as_dtype(tensor, dtype) for tensor in tensors]
