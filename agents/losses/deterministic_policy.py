"""Losses of agents with a deterministic policy: DDPG's policy gradient, and TD3's targets.

Unit actions are in [-1, 1]^D.  Each loss and target returns `[B]`.  The learner adds up the elements and divides by the
size of the global batch.
"""

from typing import Any

import tensorflow as tf

from .dtypes import as_dtype
from .quantile import quantile_target
from .shapes import check_alike, where_valid


def smoothed_action(action: Any, noise: Any, clip: Any) -> tf.Tensor:
    """Returns clip(a + clip(noise, -c, c), -1, 1): target policy smoothing (Fujimoto et al. 2018, equation (14)).

    Args:
      action: `[B, D]`, unit actions of the target policy.
      noise: `[B, D]`, samples of the noise, in units of half the range of an action.
      clip: c, the largest noise, a number.

    Returns:
      `[B, D]`, through which no gradients flow.
    """
    action = tf.convert_to_tensor(action)
    noise, clip = as_dtype(noise, action.dtype), as_dtype(clip, action.dtype)
    check_alike(2, action=action, noise=noise)
    return tf.stop_gradient(tf.clip_by_value(action + tf.clip_by_value(noise, -clip, clip), -1.0, 1.0))


def bootstrapped_target(r_t: Any, discount_t: Any, value_tp1: Any) -> tf.Tensor:
    """Computes r + gamma Q(x', a') (Fujimoto et al. 2018, equation (10), where Q is the lower of two critics' values).

    Args:
      r_t: `[B]`, the reward, or the return of an n-step window.
      discount_t: `[B]`, gamma times the environment's discount, or the discount of the window.
      value_tp1: `[B]`, the value of a', or quantiles `[B, M]`.

    Returns:
      The shape and dtype of `value_tp1`, through which no gradients flow.
    """
    value_tp1 = tf.convert_to_tensor(value_tp1)
    if value_tp1.shape.rank == 2:
        return quantile_target(r_t, discount_t, value_tp1)
    r_t, discount_t = (as_dtype(tensor, value_tp1.dtype) for tensor in (r_t, discount_t))
    check_alike(1, value_tp1=value_tp1, r_t=r_t, discount_t=discount_t)
    # After a termination there is nothing to bootstrap from, and the next observation may be anything.
    return tf.stop_gradient(r_t + tf.math.multiply_no_nan(value_tp1, discount_t))


def deterministic_policy_loss(q_t: Any, valid_t: Any) -> tf.Tensor:
    """Returns -Q(x, pi(x)), whose gradient is the deterministic policy gradient (Silver et al. 2014, equation (9)).

    Args:
      q_t: `[B]`, the critic's value of the policy's action.  Gradients flow through the action; the learner does not
        apply those with respect to the critic's variables.
      valid_t: bool `[B]`.

    Returns:
      `[B]`, 0 where the transition is not valid.
    """
    q_t = tf.convert_to_tensor(q_t)
    check_alike(1, q_t=q_t, valid_t=valid_t)
    return where_valid(valid_t, -q_t)


def regularized_policy_loss(q_t: Any, weight: Any, unit_t: Any, taken_t: Any, valid_t: Any) -> tf.Tensor:
    """Returns -w Q(x, pi(x)) + (pi(x) - a)^2, the square a mean over components (Fujimoto & Gu 2021, equation (3)).

    Args:
      q_t: `[B]`, the critic's value of the policy's action.
      weight: w, a scalar, through which no gradients flow.
      unit_t: `[B, D]`, the policy's action.
      taken_t: `[B, D]`, the recorded action.
      valid_t: bool `[B]`.

    Returns:
      `[B]`, 0 where the transition is not valid.
    """
    q_t = tf.convert_to_tensor(q_t)
    unit_t, taken_t, weight = (as_dtype(tensor, q_t.dtype) for tensor in (unit_t, taken_t, weight))
    check_alike(2, unit_t=unit_t, taken_t=taken_t)
    error_t = tf.reduce_mean(tf.square(unit_t - taken_t), axis=-1)
    check_alike(1, q_t=q_t, error_t=error_t, valid_t=valid_t)
    return where_valid(valid_t, error_t - tf.stop_gradient(weight) * q_t)
