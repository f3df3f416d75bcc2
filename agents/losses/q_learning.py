"""Double Q-learning with n-step returns: targets, TD errors and the loss.

Action values `q` have the shape `[..., A]`, where `[...]` is `[B]` for windows and `[T, B]` for sequences.

For actions of K choices they are `[..., K, A]`, the values of each choice (Tavakoli et al. 2018, "Action branching
architectures for deep reinforcement learning").  Actions are then `[..., K]`; all choices have one target, with the
mean of their values ("Temporal-difference target"); and each has a TD error, whose mean square is the loss ("Loss
function").
"""

from typing import Any

import tensorflow as tf

from .n_step import NStep, n_step_sequence, take_along_time
from .shapes import check_ranks, check_same_shape
from .value_rescaling import inverse_rescale, rescale


def action_value(q: Any, action: Any) -> tf.Tensor:
    """Selects Q(x, a) of the actions taken.

    Args:
      q: `[..., A]`.
      action: integers `[...]`.

    Returns:
      `[...]`.
    """
    q, action = tf.convert_to_tensor(q), tf.convert_to_tensor(action)
    check_same_shape(q=q[..., 0], action=action)
    return tf.gather(q, action, axis=-1, batch_dims=action.shape.rank)


def double_q_value(q_online: Any, q_target: Any) -> tf.Tensor:
    """Computes Q_target(x, argmax_a Q_online(x, a)) (van Hasselt et al. 2016, "Double DQN").

    Args:
      q_online: `[..., A]`, values of the online network, which select the action.
      q_target: `[..., A]`, values of the target network, which evaluate the action.

    Returns:
      `[...]`, through which no gradients flow.
    """
    q_online, q_target = tf.convert_to_tensor(q_online), tf.convert_to_tensor(q_target)
    check_same_shape(q_online=q_online, q_target=q_target)
    return tf.stop_gradient(action_value(q_target, tf.argmax(q_online, axis=-1, output_type=tf.int32)))


def double_q_target(steps: NStep, q_online: Any, q_target: Any, epsilon: float | None = None) -> tf.Tensor:
    """Computes G = r_1 + .. + gamma^(n-1) r_n + gamma^n Q_target(x_n, argmax_a Q_online(x_n, a)).

    Horgan et al. 2018, section 3.1.  With value rescaling, h(r_1 + .. + gamma^n h^-1(Q_target(..))): Kapturowski et al.
    2019, section 2.3.

    Args:
      steps: `NStep` over `[...]`.
      q_online: `[..., A]` or `[..., K, A]` at the observations `steps.index`.
      q_target: likewise, at the same observations.
      epsilon: parameter of value rescaling; None for no rescaling.

    Returns:
      `[...]` in the dtype of `q_target`, through which no gradients flow.
    """
    value = double_q_value(q_online, q_target)
    if value.shape.rank > steps.returns.shape.rank:
        value = tf.reduce_mean(value, axis=-1)
    if epsilon is None:
        return bootstrapped(steps, value)
    return tf.stop_gradient(rescale(bootstrapped(steps, inverse_rescale(value, epsilon)), epsilon))


def bootstrapped(steps: NStep, value: Any) -> tf.Tensor:
    """Computes G = r_1 + .. + gamma^(n-1) r_n + gamma^n v(x_n).

    Args:
      steps: `NStep` over `[...]`.
      value: `[...]`, v at the observations `steps.index`.

    Returns:
      `[...]` in the dtype of `value`, through which no gradients flow.
    """
    value = tf.convert_to_tensor(value)
    returns, discount = (tf.cast(tensor, value.dtype) for tensor in (steps.returns, steps.discount))
    check_same_shape(returns=returns, value=value)
    # After a termination there is nothing to bootstrap from, and the value at the index may be anything.
    return tf.stop_gradient(returns + tf.math.multiply_no_nan(value, discount))


def sequence_double_q_targets(
    q_online: Any, q_target: Any, r_t: Any, discount_t: Any, valid_t: Any, n: int, epsilon: float | None = None
) -> tf.Tensor:
    """Computes `double_q_target` at every timestep of a sequence, with fewer steps before its end or an episode's.

    Args:
      q_online: `[T+1, B, A]` or `[T+1, B, K, A]`; T must be known.
      q_target: likewise.
      r_t: `[T, B]`, the reward that followed the action at t.
      discount_t: `[T, B]`, gamma times the environment's discount that followed.
      valid_t: bool `[T, B]`, from `valid_transitions`.
      n: the largest number of steps.
      epsilon: parameter of value rescaling (`value_rescaling.EPSILON` in R2D2); None for no rescaling.

    Returns:
      `[T, B]` in the dtype of `q_target`, through which no gradients flow; undefined where `valid_t` is False.

    Raises:
      ValueError: if shapes do not match.
    """
    q_online, q_target = tf.convert_to_tensor(q_online), tf.convert_to_tensor(q_target)
    rank = 4 if q_target.shape.rank == 4 else 3
    check_ranks(rank, q_online=q_online, q_target=q_target)
    steps = n_step_sequence(tf.cast(r_t, q_target.dtype), discount_t, valid_t, n)
    q_tm1 = q_target[:-1, :, 0]
    check_same_shape(q_tm1=q_tm1[..., 0] if rank == 4 else q_tm1, r_t=steps.returns)
    q_online_n, q_target_n = take_along_time((q_online, q_target), steps.index)
    return double_q_target(steps, q_online_n, q_target_n, epsilon)


def td_error(q: Any, action: Any, target: Any, valid: Any) -> tf.Tensor:
    """Computes delta = target - Q(x, a), and 0 where the target is not valid.

    Args:
      q: `[..., A]` or `[..., K, A]`, through which gradients flow.
      action: integers `[...]` or `[..., K]`.
      target: `[...]`, through which no gradients flow.
      valid: bool `[...]`, whether the target is valid; for windows `NStep.valid`.

    Returns:
      `[...]` or `[..., K]` in the dtype of `q`.
    """
    chosen = action_value(q, action)
    target, valid = tf.cast(target, chosen.dtype), tf.convert_to_tensor(valid)
    if chosen.shape.rank > target.shape.rank:
        target = tf.broadcast_to(target[..., tf.newaxis], tf.shape(chosen))
        valid = tf.broadcast_to(valid[..., tf.newaxis], tf.shape(chosen))
    check_same_shape(q=chosen, target=target, valid=valid)
    return tf.where(valid, tf.stop_gradient(target) - chosen, tf.zeros_like(chosen))


def td_loss(delta: Any, weight: Any = None, huber: float | None = None, composed: bool = False) -> tf.Tensor:
    """Computes the elementwise squared or Huber loss of TD errors, times importance weights.

    The weights multiply the loss rather than the error, since they multiply the step in algorithm 1 of Schaul et al.
    2016.

    Args:
      delta: `[B]` or `[T, B]`, from `td_error`; with K choices `[B, K]` or `[T, B, K]`.
      weight: `[B]`, one per window or sequence; None for 1.
      huber: |delta| beyond which the loss is linear, huber (|delta| - huber / 2), which clips its gradient (Mnih et al.
        2015, "Training algorithm"); None for delta^2 / 2 everywhere.
      composed: whether there are several choices, whose losses are averaged.

    Returns:
      Losses `[B]` or `[T, B]` in the dtype of `delta`.  The learner adds them up and divides by the size of the global
      batch.
    """
    delta = tf.convert_to_tensor(delta)
    if huber is None:
        loss = tf.square(delta) / 2
    else:
        # Both pieces of the loss, and of its gradient, in few operations.
        clipped = tf.stop_gradient(tf.clip_by_value(delta, -huber, huber))
        loss = clipped * (delta - clipped / 2)
    if composed:
        loss = tf.reduce_mean(loss, axis=-1)
    if weight is None:
        return loss
    weight = tf.cast(weight, delta.dtype)
    check_ranks(1, weight=weight)
    check_same_shape(weight=weight, batch=loss[0] if loss.shape.rank == 2 else loss)
    return tf.stop_gradient(weight) * loss
