"""Which transitions are valid, and where the sum of an n-step return ends.

The functions work on NumPy arrays and TensorFlow tensors alike: they only use `~`, `&`, `|` and comparisons.
"""

from collections.abc import Sequence
from typing import Any


def valid_transitions(first: Any, last: Any, discount_t: Any) -> Any:
    """Returns whether each transition t -> t+1 is valid.

    It is valid unless `last[t]` (the action was ignored), or `first[t+1]` with a discount other than 0 (the episode was
    truncated and its final observation is lost).  Nothing is learned from an invalid transition, and nothing bootstraps
    across it.

    Args:
      first: bool `[T+1, ...]`, whether the observation begins an episode.
      last: bool `[T+1, ...]`, whether the observation ends an episode.
      discount_t: `[T, ...]`, the environment's discount that followed the action at t.

    Returns:
      bool `[T, ...]`.

    Raises:
      ValueError: if shapes do not match.
    """
    shapes = [tuple(array.shape) for array in (first[1:], last[1:], discount_t)]
    if shapes[0] != shapes[1] or shapes[0] != shapes[2]:
        raise ValueError(
            "first and last need one timestep more than discount_t, and otherwise the same shape, not "
            f"{first.shape}, {last.shape} and {discount_t.shape}"
        )
    return ~last[:-1] & ((discount_t == 0) | ~first[1:])


def reached_transitions(valid_t: Sequence[Any], discount_t: Sequence[Any]) -> list[Any]:
    """Returns which of consecutive transitions an n-step return from the first observation adds up.

    The sum ends after a transition whose discount is 0 (the episode terminated) and before one that is not valid.

    Args:
      valid_t: n arrays bool `[...]`, from `valid_transitions`.
      discount_t: n arrays `[...]`, the discounts that followed.

    Returns:
      n arrays bool `[...]`.
    """
    reached: list[Any] = []
    for t, valid in enumerate(valid_t):
        reached.append(valid if t == 0 else reached[-1] & (discount_t[t - 1] != 0) & valid)
    return reached
