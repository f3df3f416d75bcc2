"""Elementwise terms of an actor-critic loss.

Each function returns `[T, B]`, 0 where the transition is not valid.  The learner adds up the elements over all replicas
and may divide by T * B of the global batch, so the update does not depend on how the batch is split over replicas.
"""

from typing import Any

import tensorflow as tf

from .shapes import check_alike, where_valid


def policy_gradient_loss(log_prob_t: Any, advantage_t: Any, valid_t: Any) -> tf.Tensor:
    """Returns -advantage_t log pi(a_t|x_t), whose gradient is the policy gradient (Sutton et al. 2000, theorem 1).

    Args:
      log_prob_t: `[T, B]`, log pi(a_t|x_t) of the current policy.
      advantage_t: `[T, B]`, through which no gradients flow.
      valid_t: bool `[T, B]`, from `valid_transitions`.

    Returns:
      `[T, B]`.
    """
    check_alike(2, log_prob_t=log_prob_t, advantage_t=advantage_t, valid_t=valid_t)
    return where_valid(valid_t, -log_prob_t * tf.stop_gradient(advantage_t))


def entropy_loss(entropy_t: Any, valid_t: Any) -> tf.Tensor:
    """Returns -H(pi(.|x_t)); minimizing it discourages premature convergence (Mnih et al. 2016, section 4).

    Args:
      entropy_t: `[T, B]`, entropy of the policy in nats.
      valid_t: bool `[T, B]`.

    Returns:
      `[T, B]`.
    """
    check_alike(2, entropy_t=entropy_t, valid_t=valid_t)
    return where_valid(valid_t, -entropy_t)


def value_loss(v_t: Any, target_t: Any, valid_t: Any) -> tf.Tensor:
    """Returns (target_t - V(x_t))^2 / 2.

    Its negative gradient is (v_s - V(x_s)) grad V(x_s), as in Espeholt et al. 2018, section 4.2.

    Args:
      v_t: `[T, B]`, the value function's output.
      target_t: `[T, B]`, value targets, through which no gradients flow.
      valid_t: bool `[T, B]`.

    Returns:
      `[T, B]`.
    """
    check_alike(2, v_t=v_t, target_t=target_t, valid_t=valid_t)
    return where_valid(valid_t, tf.square(tf.stop_gradient(target_t) - v_t) / 2)
