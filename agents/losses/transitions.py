"""Validity of transitions: which of a sequence are learned from, and which only connect two episodes."""

from typing import Any

import tensorflow as tf

from .shapes import check_ranks, check_same_shape


def counts(first: Any, last: Any, discount_t: Any) -> tf.Tensor:
    """Returns whether each transition t -> t+1 is valid.

    It is valid unless `last[t]` (the action was ignored), or `first[t+1]` with a discount other than 0 (the episode was
    truncated and its final observation is lost).  Nothing is learned from an invalid transition, and nothing bootstraps
    across it.

    Args:
      first: bool `[T+1, B]`, whether the observation begins an episode.
      last: bool `[T+1, B]`, whether the observation ends an episode.
      discount_t: `[T, B]`, the environment's discount that followed the action at t.

    Returns:
      bool `[T, B]`.
    """
    first, last, discount_t = (tf.convert_to_tensor(tensor) for tensor in (first, last, discount_t))
    check_ranks(2, first=first, last=last, discount_t=discount_t)
    check_same_shape(first=first[1:], last=last[:-1], discount_t=discount_t)
    terminated = tf.equal(discount_t, 0)
    return ~last[:-1] & (terminated | ~first[1:])
