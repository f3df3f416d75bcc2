"""Exploration bonuses: the errors of predictions, their losses, and values of bonuses that do not end with episodes.

Random network distillation is of Burda et al. 2018 (https://arxiv.org/abs/1810.12894), the intrinsic curiosity module
of Pathak et al. 2017 (https://arxiv.org/abs/1705.05363).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from .shapes import check_alike, check_same_shape, where_valid

_GOLDEN_RATIO = 0.6180339887498949


class Prediction(NamedTuple):
    """The bonus of transitions, and the loss of the networks that predict it."""

    error: tf.Tensor
    """`[T, B]`, the bonus before it is normalized, through which no gradients flow."""
    loss: tf.Tensor
    """`[T, B]`, what the networks minimize.  Both are 0 where there is no bonus."""


def weight_ladder(slots: int, weight: float) -> np.ndarray:
    """Returns fixed weights of the bonus, one per environment: most are near `weight` or near 0.

    The i-th has, with j = N - 1 - i, 0 for j = 0, `weight` for j = N - 1, and otherwise
    weight * sigmoid(10 (2 j - (N - 2)) / (N - 2)) (Badia et al. 2020, https://arxiv.org/abs/2002.06038, appendix A).
    The first environment, which has the largest rate of random actions, has the largest weight.

    Args:
      slots: N, at least 2, the number of environments of all actors.
      weight: the largest.

    Returns:
      float32 `[N]`.
    """
    between = max(1, slots - 2)
    share = 1 / (1 + np.exp(-10 * (2 * np.arange(slots)[::-1] - between) / between))
    share[0], share[-1] = 1, 0
    return (weight * share).astype(np.float32)


def row_weights(rows: int, weight: float) -> np.ndarray:
    """Returns the weights of a `weight_ladder` for the rows of a batch, float32 `[rows]`.

    They are in such an order that any part of the batch has small ones and large ones: the share of a replica, or that
    of demonstrations.
    """
    place = np.argsort(np.argsort(np.arange(rows) * _GOLDEN_RATIO % 1.0))
    return weight_ladder(rows, weight)[place]


def distillation(predicted_tp1: Any, target_tp1: Any, valid_t: Any) -> Prediction:
    """Returns the bonus |f^(x_{t+1}) - f(x_{t+1})|^2 of a predictor f^ and a fixed random network f (RND, section 2.2).

    Args:
      predicted_tp1: `[T, B, F]`, f^ of the observation that followed.
      target_tp1: `[T, B, F]`, f of it, through which no gradients flow.
      valid_t: bool `[T, B]`, the transitions that have a bonus.
    """
    error_t = where_valid(valid_t, squared_distance(predicted_tp1, tf.stop_gradient(target_tp1)))
    return Prediction(tf.stop_gradient(error_t), error_t)


def curiosity(predicted_tp1: Any, features_tp1: Any, inverse_t: Any, valid_t: Any, forward_weight: float) -> Prediction:
    """Returns the bonus of ICM, its forward loss, and beta times that and 1 - beta times the inverse one as loss.

    The forward loss is L_F = |phi^(x_{t+1}) - phi(x_{t+1})|^2 / 2 (equation (5)), and the bonus has the same form
    (equation (6)).  The features learn from both losses (equation (7)).

    Args:
      predicted_tp1: `[T, B, F]`, the features predicted from those of the observation and the action.
      features_tp1: `[T, B, F]`, the features of the observation that followed.
      inverse_t: `[T, B]`, L_I, see `inverse_loss`.
      valid_t: bool `[T, B]`, the transitions that have a bonus.
      forward_weight: beta.
    """
    forward_t = where_valid(valid_t, squared_distance(predicted_tp1, features_tp1) / 2)
    check_alike(2, forward_t=forward_t, inverse_t=inverse_t)
    loss_t = forward_weight * forward_t + (1 - forward_weight) * where_valid(valid_t, inverse_t)
    return Prediction(tf.stop_gradient(forward_t), loss_t)


def inverse_loss(logits: Any, choices: Any, unit_numbers: Any, numbers: Any) -> tf.Tensor:
    """Returns how badly an action is told: the cross-entropy of its choices, and half the squared error of its numbers.

    ICM's actions are one choice (equation (3)).

    Args:
      logits: `[..., K, M]`, of the values of each choice, the lowest where a choice has fewer; `()` without choices.
      choices: integers `[..., K]`, the choices made; `()` without choices.
      unit_numbers: `[..., D]`, the numbers of the action as told; `()` without numbers.
      numbers: `[..., D]`, the numbers of the action taken; `()` without numbers.

    Returns:
      `[...]`.
    """
    losses = []
    if not isinstance(logits, tuple):
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=choices, logits=logits)
        losses.append(tf.reduce_sum(entropy, axis=-1))
    if not isinstance(unit_numbers, tuple):
        losses.append(squared_distance(unit_numbers, numbers) / 2)
    return tf.add_n(losses)


def squared_distance(x: Any, y: Any) -> tf.Tensor:
    """Returns the squared Euclidean distance `[...]` of vectors `[..., F]`."""
    check_same_shape(x=x, y=y)
    return tf.reduce_sum(tf.math.squared_difference(x, y), axis=-1)


def non_episodic(
    estimate: Callable[..., Any], values: Any, bonus_t: Any, valid_t: Any, last: Any, discount: float, **of_steps: Any
) -> Any:
    """Returns an estimate of advantages whose sums of bonuses continue in the next episode (RND, section 2.3).

    A reset is no transition and takes no time: the estimate is that of the valid transitions alone, one after the
    other, so that the last observation of an episode has the value of the first one of the next.  Where a sequence ends
    with an episode, the value of the observation before stands for that.

    Args:
      estimate: `gae.gae` or `vtrace.vtrace`, with their other arguments.
      values: `[T+1, B]`, the value of bonuses at every observation.
      bonus_t: `[T, B]`, 0 where there is none.
      valid_t: bool `[T, B]`, from `valid_transitions`.
      last: bool `[T+1, B]`, whether the observation ends an episode.
      discount: gamma.
      of_steps: further arguments of the estimate, `[T, B]`, by name.

    Returns:
      What `estimate` returns, whose numbers mean nothing where `valid_t` is False.
    """
    values, valid_t, last = (tf.convert_to_tensor(tensor) for tensor in (values, valid_t, last))
    bonus_t = tf.cast(bonus_t, values.dtype)
    check_alike(2, bonus_t=bonus_t, valid_t=valid_t)
    check_alike(2, values=values, last=last)
    # Floats, since integers of 32 bits are sorted on the CPU.
    rows = tf.range(tf.cast(tf.shape(valid_t)[0], tf.float32))[:, tf.newaxis]
    order = tf.argsort(tf.where(valid_t, rows, rows + tf.cast(tf.shape(valid_t)[0], rows.dtype)), axis=0)
    number = tf.reduce_sum(tf.cast(valid_t, rows.dtype), axis=0)
    behind = tf.where(last[-1], values[-2], values[-1])
    ordered = tf.concat([_taken(values[:-1], order), behind[tf.newaxis]], axis=0)
    estimated = estimate(
        values=tf.stop_gradient(tf.concat([tf.where(rows == number, behind, ordered[:-1]), ordered[-1:]], axis=0)),
        r_t=_taken(where_valid(valid_t, bonus_t), order),
        discount_t=tf.fill(tf.shape(valid_t), tf.constant(discount, values.dtype)),
        valid_t=tf.broadcast_to(rows < number, tf.shape(valid_t)),
        **{name: _taken(where_valid(valid_t, step_t), order) for name, step_t in of_steps.items()},
    )
    place = tf.argsort(tf.cast(order, rows.dtype), axis=0)
    return tf.nest.map_structure(lambda leaf: _taken(leaf, place), estimated)


def _taken(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns of each column of `[T, B]` the elements in these rows `[T, B]`, in their order."""
    taken = tf.transpose(tf.gather(tf.transpose(x), tf.transpose(rows), batch_dims=1))
    return tf.ensure_shape(taken, x.shape)
