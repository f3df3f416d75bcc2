"""Which transitions of a sequence are experience, and which only join one episode to the next."""

from typing import Any

import tensorflow as tf

from .shapes import check_ranks, check_same_shape


def counts(first: Any, last: Any, discount_t: Any) -> tf.Tensor:
    """Whether each transition t -> t+1 counts.

    It does unless `last[t]` (the action was ignored), or `first[t+1]` with a discount other than 0 (the episode was cut
    off and its final observation is lost).  Where it does not count, nothing is learned from it and nothing flows over
    it.

    Args:
      first: bool `[T+1, B]`, the observation begins an episode.
      last: bool `[T+1, B]`, the observation ends one.
      discount_t: `[T, B]`, the environment's discount that followed the action at t.

    Returns:
      bool `[T, B]`.
    """
    first, last, discount_t = (tf.convert_to_tensor(tensor) for tensor in (first, last, discount_t))
    check_ranks(2, first=first, last=last, discount_t=discount_t)
    check_same_shape(first=first[1:], last=last[:-1], discount_t=discount_t)
    terminated = tf.equal(discount_t, 0)
    return ~last[:-1] & (terminated | ~first[1:])
