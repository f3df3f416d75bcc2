"""The largest observations and actions that are taken, before anything is allocated for them."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tree
from dm_env import specs

from ...data import Nest
from ...errors import CallboardError
from ...specs import MultiDiscreteArray
from .observation_values import place_text

MOST_NUMBERS = 2**25
"""Largest number of elements of an observation.

As float32 they take 128 MiB for each timestep, of which replay keeps many, and 16 timesteps reach the 2 GiB that are
the limit of a gRPC message; a first layer of 64 units has 2**31 weights, 8 GiB.  A picture of 3840 x 2160 has 0.74
times as many.
"""
MOST_FEATURES = 1_000_000
"""Largest number of inputs of networks by one-hot choices, and of outputs for actions: values of choices, and numbers.

Each is a row or column of a dense layer: with 256 units 1 GiB of weights, and 3 GiB with the moments of Adam.
"""
MOST_PARTS = 256
"""Largest number of arrays of an observation or action.

Each is a column of replay and an input of its own: training PPO for its first updates took 14 s of processor time with
one part, and 54 s with 100.
"""
MOST_AXES = 30
"""Largest number of axes of an array: NumPy has 32, of which time and batch are two."""
DEEPEST = 32
"""Largest number of dictionaries and tuples inside of each other."""


def check_array(shape: Sequence[int], role: str, path: Sequence[str] = (), values: Any = None) -> None:
    """Checks one array of an observation or an action.

    Args:
      shape: its shape.
      role: what it is a part of, `observation` or `action`.
      path: names of the parts that contain it, for messages.
      values: if it contains choices, how many values each has: an int or an array.

    Raises:
      CallboardError: it is too large, or a choice has no values.
    """
    if values is not None and np.min(values, initial=1) < 1:
        raise CallboardError(
            f"the {role}{place_text(path)} has a choice of {np.min(values)} values: give it at least 1"
        )
    if len(shape) > MOST_AXES:
        raise CallboardError(
            f"the {role}{place_text(path)} has {len(shape)} axes, more than {MOST_AXES}: give the space fewer"
        )
    _check_counts(role, path, *_counts(shape, values))


def check_bounds(low: Any, high: Any, role: str, path: Sequence[str] = ()) -> None:
    """Raises `CallboardError` if bounds of numbers are not in order, or no numbers."""
    low, high = np.broadcast_arrays(low, high)
    for place in np.argwhere(~(low <= high))[:1].tolist():
        lower, upper = low[tuple(place)], high[tuple(place)]
        raise CallboardError(
            f"the {role}{place_text(path)} has numbers from {lower} to {upper}: give its space bounds of "
            "which the lower one is not above the upper one"
        )


def check_depth(role: str, path: Sequence[str]) -> None:
    """Raises `CallboardError` if a part of an observation or action is inside of too many others."""
    if len(path) > DEEPEST:
        raise CallboardError(f"the {role} space is nested deeper than {DEEPEST} levels: give it fewer")


def check_sizes(observation: Nest, action: Nest) -> None:
    """Checks observations and actions as a whole.

    Args:
      observation: nest of dm_env specs.
      action: nest of dm_env specs.

    Raises:
      CallboardError: there is too much in them.
    """
    for role, nest in (("observation", observation), ("action", action)):
        leaves = tree.flatten(nest)
        if len(leaves) > MOST_PARTS:
            raise CallboardError(
                f"the {role} has {len(leaves):,} parts, more than {MOST_PARTS}: put those of one kind into one array"
            )
        counts = [_counts(leaf.shape, _values(leaf)) for leaf in leaves if isinstance(leaf, specs.Array)]
        _check_counts(role, (), sum(one for one, _ in counts), sum(one for _, one in counts))


def _check_counts(role: str, path: Sequence[str], numbers: int, values: int) -> None:
    most = MOST_FEATURES if role == "action" else MOST_NUMBERS
    if values > MOST_FEATURES:
        fix = (
            "hash them to fewer, or give them as numbers (Box)" if role == "observation" else "choose in several parts"
        )
        raise CallboardError(
            f"the {role}{place_text(path)} has {values:,} values, too many for one-hot, which is for "
            f"{MOST_FEATURES:,}: {fix}"
        )
    if numbers > most:
        raise CallboardError(
            f"the {role}{place_text(path)} has {numbers:,} numbers, more than {most:,}: give the space a smaller shape"
        )


def _counts(shape: Iterable[int], values: Any) -> tuple[int, int]:
    """Returns the number of elements, and of values of choices."""
    return math.prod(map(int, shape)), 0 if values is None else int(np.sum(values, dtype=object))


def _values(leaf: specs.Array) -> Any:
    return leaf.num_values if isinstance(leaf, specs.DiscreteArray | MultiDiscreteArray) else None
