"""Elementwise losses of SAC (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications").

`alpha` is the temperature, a scalar.  Log-probabilities are those of unit actions in [-1, 1]^D, from
`distributions.SquashedGaussian`.  Each loss returns `[B]`, 0 where the transition is not valid.  The learner adds up
the elements and divides by the size of the global batch.
"""

from typing import Any

import tensorflow as tf

from .deterministic_policy import bootstrapped_target
from .dtypes import as_dtype
from .shapes import check_alike, check_ranks, check_same_shape, where_valid


def soft_target(r_t: Any, discount_t: Any, value_tp1: Any, log_prob_tp1: Any, alpha: Any) -> tf.Tensor:
    """Computes r + gamma (Q(x', a') - alpha log pi(a'|x')), a' sampled from pi(.|x') (equations (3) and (5)).

    Args:
      r_t: `[B]`, the reward, or the return of an n-step window, from the rewards of `soft_rewards`.
      discount_t: `[B]`, gamma times the environment's discount, or the discount of the window.
      value_tp1: `[B]`, the target critics' value of a', of which the minimum reduces overestimation (section 6), or
        quantiles `[B, M]` (Kuznetsov et al. 2020, equation (11)).
      log_prob_tp1: `[B]`, log pi(a'|x').
      alpha: scalar.

    Returns:
      The shape and dtype of `value_tp1`, through which no gradients flow.
    """
    value_tp1 = tf.convert_to_tensor(value_tp1)
    log_prob_tp1, alpha = _cast(value_tp1.dtype, log_prob_tp1, alpha)
    check_ranks(1, log_prob_tp1=log_prob_tp1)
    cost = alpha * log_prob_tp1
    return bootstrapped_target(r_t, discount_t, value_tp1 - (cost if value_tp1.shape.rank == 1 else cost[:, None]))


def soft_rewards(r_t: Any, log_prob_t: Any, alpha: Any) -> tf.Tensor:
    """Adds to the rewards of an n-step window the entropy at its observations in between, as a sample or expectation.

    The return of a policy that is paid for its entropy is r_0 + sum_i gamma^i (r_i - alpha log pi(a_i|x_i)), i > 0:
    equation (3), applied at every observation after the first.

    Args:
      r_t: `[n, B]`, the rewards that followed the actions at x_0 to x_{n-1}.
      log_prob_t: `[n - 1, B]`, log pi(a_i|x_i) at x_1 to x_{n-1}, of actions sampled from the policy.
      alpha: scalar.

    Returns:
      `[n, B]` in the dtype of `log_prob_t`, through which no gradients flow.
    """
    log_prob_t = tf.convert_to_tensor(log_prob_t)
    r_t, alpha = _cast(log_prob_t.dtype, r_t, alpha)
    check_ranks(2, r_t=r_t, log_prob_t=log_prob_t)
    check_same_shape(r_t=r_t[1:], log_prob_t=log_prob_t)
    bonus = tf.concat([tf.zeros_like(r_t[:1]), -alpha * log_prob_t], axis=0)
    return tf.stop_gradient(r_t + bonus)


def critic_loss(q_t: Any, target_t: Any, valid_t: Any) -> tf.Tensor:
    """Computes the sum over all critics of (Q_k - target)^2 / 2 (equation (5)).

    Args:
      q_t: `[K, B]`, the critics' values of the action taken.
      target_t: `[B]`, from `soft_target`, through which no gradients flow.
      valid_t: bool `[B]`.

    Returns:
      `[B]`.
    """
    q_t, valid_t = tf.convert_to_tensor(q_t), tf.convert_to_tensor(valid_t)
    target_t = tf.stop_gradient(as_dtype(target_t, q_t.dtype))
    check_ranks(2, q_t=q_t)
    check_alike(1, q_t=q_t[0], target_t=target_t, valid_t=valid_t)
    return where_valid(valid_t, tf.reduce_sum(tf.square(q_t - target_t), axis=0) / 2)


def actor_loss(value_t: Any, log_prob_t: Any, alpha: Any, valid_t: Any) -> tf.Tensor:
    """Computes alpha log pi(a|x) - Q(x, a), with a sampled by reparameterization (equation (9)).

    With expectations over discrete actions in place of samples it is equation (12) of Christodoulou 2019.

    Args:
      value_t: `[B]`, the critics' value of a, such as their minimum.  Gradients flow through a; the learner does not
        apply those with respect to the critics' variables.
      log_prob_t: `[B]`, log pi(a|x).
      alpha: scalar, through which no gradients flow.
      valid_t: bool `[B]`.

    Returns:
      `[B]`.
    """
    value_t, valid_t = tf.convert_to_tensor(value_t), tf.convert_to_tensor(valid_t)
    log_prob_t, alpha = _cast(value_t.dtype, log_prob_t, alpha)
    check_alike(1, value_t=value_t, log_prob_t=log_prob_t, valid_t=valid_t)
    return where_valid(valid_t, tf.stop_gradient(alpha) * log_prob_t - value_t)


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
