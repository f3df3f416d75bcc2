"""Exploration bonuses: the errors of predictions, their losses, and values of bonuses that do not end with episodes.

Random network distillation is of Burda et al. 2018 (https://arxiv.org/abs/1810.12894), the intrinsic curiosity module
of Pathak et al. 2017 (https://arxiv.org/abs/1705.05363).
"""

from typing import Any, NamedTuple

import tensorflow as tf

from .recurrence import backward_sum
from .shapes import check_alike, check_same_shape, where_valid


class Prediction(NamedTuple):
    """The bonus of transitions, and the loss of the networks that predict it."""

    error: tf.Tensor
    """`[T, B]`, the bonus before it is normalized, through which no gradients flow."""
    loss: tf.Tensor
    """`[T, B]`, what the networks minimize.  Both are 0 where there is no bonus."""


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


class NonEpisodic(NamedTuple):
    """Arguments of estimates of advantages, for bonuses whose sums continue in the next episode (RND, section 2.3)."""

    values: tf.Tensor
    """`[T+1, B]`; where an action was ignored, the value of the next observation from which it was not."""
    r_t: tf.Tensor
    """`[T, B]`, bonuses."""
    discount_t: tf.Tensor
    """`[T, B]`, gamma; 1 where an action was ignored, which takes no time."""
    valid_t: tf.Tensor
    """bool `[T, B]`, all true: what is not a transition passes on the value behind it."""


def non_episodic(values: Any, bonus_t: Any, valid_t: Any, last: Any, discount: float) -> NonEpisodic:
    """Returns arguments for `gae.gae` and `vtrace.vtrace` by which sums of bonuses continue in the next episode.

    A reset is no transition: the last observation of an episode has the value of the first one of the next.  Where a
    sequence ends with an episode, the value of the observation before stands for that.  Of the results, those where
    `valid_t` is False mean nothing.

    Args:
      values: `[T+1, B]`, the value of bonuses at every observation.
      bonus_t: `[T, B]`, 0 where there is none.
      valid_t: bool `[T, B]`, from `valid_transitions`.
      last: bool `[T+1, B]`, whether the observation ends an episode.
      discount: gamma.
    """
    values, valid_t, last = (tf.convert_to_tensor(tensor) for tensor in (values, valid_t, last))
    bonus_t = tf.cast(bonus_t, values.dtype)
    check_alike(2, bonus_t=bonus_t, valid_t=valid_t)
    check_alike(2, values=values, last=last)
    own = tf.concat([valid_t, tf.ones_like(valid_t[:1])], axis=0)
    values = tf.concat([values[:-1], tf.where(last[-1:], values[-2:-1], values[-1:])], axis=0)
    passed = backward_sum(where_valid(own, values), tf.cast(~own, values.dtype))
    discount_t = tf.where(valid_t, tf.constant(discount, values.dtype), tf.ones((), values.dtype))
    return NonEpisodic(tf.stop_gradient(passed), where_valid(valid_t, bonus_t), discount_t, tf.ones_like(valid_t))
