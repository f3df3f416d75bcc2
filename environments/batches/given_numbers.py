"""Numbers that do not come from code of ours, but from a caller: nested lists, arrays, or tensors."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import CallboardError

_NUMBERS = "biuf"
_PLAIN = frozenset((bool, int, float))
_LISTS = frozenset((list, tuple))
_MOST_AXES = 32


def read_numbers(given: Any, name: str) -> np.ndarray:
    """Returns numbers as an array of bools, integers or floats.

    It takes memory in proportion to what was given: NumPy, which makes every text as wide as the longest, sees none.

    Args:
      given: a number, an array or a tensor, or lists of them.
      name: what it is, for messages, such as `the observation at 'speed'`.

    Raises:
      CallboardError: it is something else.
    """
    if isinstance(given, np.ndarray):
        return _checked(given, name)
    shape: list[int] = []
    level: Any = (given,)
    while (kinds := set(map(type, level))) <= _LISTS:
        if len(shape) == _MOST_AXES:
            raise CallboardError(f"{name} has lists inside of lists, more than {_MOST_AXES}: give fewer")
        lengths = set(map(len, level))
        if len(lengths) > 1:
            raise CallboardError(f"{name} has lists of different lengths beside each other: give equal ones")
        shape += lengths
        if not shape[-1]:
            return np.zeros(shape, np.float32)
        level = tuple(itertools.chain.from_iterable(level))
    if kinds <= _PLAIN:
        return _checked(np.array(level), name).reshape(shape)
    if not kinds.isdisjoint(_LISTS):
        raise CallboardError(f"{name} has lists and other values beside each other: give lists of numbers")
    for kind in kinds - _PLAIN:
        if kind is type(None) or issubclass(kind, str | bytes | Mapping):
            raise CallboardError(f"{name} contains {_description(kind, level)}: give numbers")
    try:
        arrays = [_checked(np.asarray(one), name) for one in level]
    except (ValueError, TypeError) as error:
        raise CallboardError(f"{name} is a {type(given).__name__}, not numbers") from error
    if len({array.shape for array in arrays}) > 1:
        raise CallboardError(f"{name} has arrays of different shapes beside each other: give equal ones")
    return np.stack(arrays).reshape((*shape, *arrays[0].shape))


def one_number(given: Any) -> float | None:
    """Returns one number as a float, which may not be finite; None if it is anything else, such as text."""
    try:
        return None if isinstance(given, str | bytes) else float(given)
    except (TypeError, ValueError, OverflowError):
        return None


def _checked(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind in _NUMBERS:
        return array
    if array.dtype == object and all(isinstance(one, int | float) for one in array.flat):
        raise CallboardError(f"{name} contains an integer of more than 64 bits: give smaller numbers")
    raise CallboardError(f"{name} is of type {array.dtype.name}, not of numbers")


def _description(kind: type, level: tuple[Any, ...]) -> str:
    if kind is type(None):
        return "null (None)"
    if issubclass(kind, Mapping):
        return "a dictionary"
    text: Any = next(one for one in level if type(one) is kind)
    return f"text, {text[:32]!r}"
