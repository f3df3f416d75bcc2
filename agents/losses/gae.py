"""Generalized advantage estimation (Schulman et al. 2016, https://arxiv.org/abs/1506.02438)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from .recurrence import backward_sum
from .shapes import check_ranks, check_same_shape

_EPSILON = 1e-8
_LEAST_SHARE = 0.1
"""Least standard deviation by which advantages are divided, relative to that of the targets of the value."""


class GAE(NamedTuple):
    """Advantage estimates and value targets, through which no gradients flow."""

    advantages: tf.Tensor
    """`[T, B]`, 0 where the transition is not valid."""
    targets: tf.Tensor
    """`[T, B]`, value targets: V(x_t) plus the advantage, the lambda-return."""


def gae(values: Any, r_t: Any, discount_t: Any, valid_t: Any, lambda_: float) -> GAE:
    """Computes advantages as sums of TD errors, discounted by gamma lambda (equation (16)).

        A_t = sum_{l >= 0} (gamma lambda)^l delta_{t+l},  delta_t = r_t + gamma V(x_{t+1}) - V(x_t)

    computed as A_t = delta_t + gamma_t lambda A_{t+1}.  The sum ends with the sequence, with an episode, and before a
    transition that is not valid: at a time limit, it bootstraps from the value of the final observation.

    Args:
      values: `[T+1, B]`, V(x_0) .. V(x_T).
      r_t: `[T, B]`, the reward that followed the action at t.
      discount_t: `[T, B]`, gamma times the environment's discount that followed.
      valid_t: bool `[T, B]`, from `valid_transitions`.
      lambda_: 0 for one-step TD errors, 1 for full returns.

    Returns:
      `GAE`, in the dtype of `values`.

    Raises:
      ValueError: if shapes do not match.
    """
    values = tf.convert_to_tensor(values)
    r_t, discount_t = (tf.cast(tensor, values.dtype) for tensor in (r_t, discount_t))
    valid_t = tf.convert_to_tensor(valid_t)
    check_ranks(2, values=values, r_t=r_t, discount_t=discount_t, valid_t=valid_t)
    v_t, v_tp1 = values[:-1], values[1:]
    check_same_shape(v_t=v_t, r_t=r_t, discount_t=discount_t, valid_t=valid_t)
    zeros = tf.zeros_like(v_t)
    delta_t = tf.where(valid_t, r_t + discount_t * v_tp1 - v_t, zeros)
    decay_t = tf.where(valid_t, lambda_ * discount_t, zeros)
    advantages = backward_sum(delta_t, decay_t)
    return GAE(advantages=tf.stop_gradient(advantages), targets=tf.stop_gradient(v_t + advantages))


def standardized(
    advantage_t: Any,
    valid_t: Any,
    sum_all: Callable[[tf.Tensor], tf.Tensor] = tf.reduce_sum,
    target_t: Any | None = None,
) -> Any:
    """Standardizes advantages to zero mean and unit variance over the valid transitions.

    Once every episode goes as the value predicts, advantages are nothing but its errors.  Divided by their own
    deviation they look like a signal, and change a policy that has nothing left to learn.  If targets are given,
    advantages are thus divided by at least a tenth of the targets' deviation.  Theirs is smaller only where the value
    explains more than 99% of the variance of its targets.

    Args:
      advantage_t: `[T, B]`, one replica's share.
      valid_t: bool `[T, B]`.
      sum_all: adds up all elements over all replicas, such as `replicas.sum_over_replicas`.  Moments of a single
        replica would make the update depend on the number of replicas.
      target_t: `[T, B]`, the value's targets on the scale of the advantages; None for a deviation that is only theirs.

    Returns:
      `[T, B]`, 0 where the transition is not valid.
    """
    advantage_t, valid_t = tf.convert_to_tensor(advantage_t), tf.convert_to_tensor(valid_t)
    check_same_shape(advantage_t=advantage_t, valid_t=valid_t)
    number = tf.maximum(sum_all(tf.cast(valid_t, advantage_t.dtype)), 1)

    def moments(x_t: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        zeros = tf.zeros_like(x_t)
        centered = tf.where(valid_t, x_t - sum_all(tf.where(valid_t, x_t, zeros)) / number, zeros)
        return centered, tf.sqrt(sum_all(tf.square(centered)) / number)

    centered, deviation = moments(advantage_t)
    if target_t is not None:
        target_t = tf.cast(target_t, advantage_t.dtype)
        check_same_shape(advantage_t=advantage_t, target_t=target_t)
        deviation = tf.maximum(deviation, _LEAST_SHARE * moments(target_t)[1])
    return centered / (deviation + _EPSILON)
