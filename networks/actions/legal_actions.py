"""Legal actions: those that an action mask in the observation allows, and what masks do to logits and action values."""

from typing import Any

import tensorflow as tf
import tree

from ...action_masks import MASK, has_mask
from ...data import Nest

_ILLEGAL = -1e9
"""Logit or value of an action that is masked: far below all others, but finite, so that 0 times it is 0."""


def legal_actions(observation: Nest) -> tf.Tensor | None:
    """Returns which values of discrete choices the masks in observations allow; None if there is no mask.

    Where a mask allows nothing, as environments may show at the end of an episode, everything is legal.  (Elsewhere the
    environment is refused: `environments.checked_observations`.)

    Args:
      observation: tensors `[..., *shape]`.

    Returns:
      bool `[..., A]`, for several choices concatenated (see `action_parts.ActionParts.legal_rows`).
    """
    if not has_mask(observation):
        return None
    legal = tf.concat([tf.cast(part, tf.bool) for part in tree.flatten(observation[MASK])], axis=-1)
    return legal | ~tf.reduce_any(legal, axis=-1, keepdims=True)


def mask_illegal(values: Any, legal: Any) -> tf.Tensor:
    """Returns logits or action values `[..., A]`, finite but far below all others where actions are not legal.

    Nothing is learned from the outputs for actions that are not legal: no gradient flows to them.

    Args:
      values: `[..., A]`.
      legal: bool `[..., A]`, or None if all actions are.
    """
    if legal is None:
        return values
    values = tf.convert_to_tensor(values)
    return tf.where(legal, values, tf.constant(max(_ILLEGAL, values.dtype.min / 2), values.dtype))


def legal_mean(values: tf.Tensor, legal: Any, axis: int = -1) -> tf.Tensor:
    """Returns the mean of values over the legal actions along `axis`, which is kept with length 1.

    Args:
      values: `[..., A]`, or with further axes after `axis`.
      legal: bool of the same shape, or of one that broadcasts to it; None if all actions are legal.
      axis: the axis of the actions.
    """
    if legal is None:
        return tf.reduce_mean(values, axis=axis, keepdims=True)
    weight = tf.cast(legal, values.dtype)
    return tf.reduce_sum(weight * values, axis, keepdims=True) / tf.reduce_sum(weight, axis, keepdims=True)
