"""Observations that do not come from an environment of ours, but from a caller: one of them, or a batch."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...data import Nest
from ...errors import CallboardError, shortened, type_text
from ..batches import encoding
from .encoding import Leaf
from .observation_values import place_text

_TEXT = (str, bytes)
_NUMBERS = "biuf"
_PLAIN = frozenset((bool, int, float))
_LISTS = frozenset((list, tuple))
_MOST_AXES = 32
_MOST_KEY = 64


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
        raise CallboardError(f"{name} is {type_text(given)}, not numbers") from error
    if len({array.shape for array in arrays}) > 1:
        raise CallboardError(f"{name} has arrays of different shapes beside each other: give equal ones")
    return np.stack(arrays).reshape((*shape, *arrays[0].shape))


def one_number(given: Any) -> float | None:
    """Returns one number as a float, which may not be finite; None if it is anything else, such as text."""
    if type(given) is float:
        return given
    try:
        return None if isinstance(given, _TEXT) else float(given)
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


def refuse_other_parts(given: Mapping[Any, Any] | Sequence[Any], parts: Mapping[Any, Any], name: str) -> None:
    """Raises `CallboardError` if a value has another part than `parts`; `name` is what it is, for the message."""
    for key in given if isinstance(given, Mapping) else range(len(given)):
        if key not in parts:
            shown = shortened(repr(key), _MOST_KEY)
            raise CallboardError(f"{name} has the part {shown}, which the policy does not know: leave it out")


def read_observations(encodings: Nest, given: Any, batches: bool = True) -> tuple[Nest, int | None]:
    """Checks and encodes one observation or a batch of them, in the environment's own form.

    Args:
      encodings: the encoding of the environment's observations.
      given: a nest of arrays `[...]` or `[B, ...]`, or of Python numbers and lists of them.
      batches: whether it may be a batch.

    Returns:
      A nest of the agent's arrays `[B, ...]`, and B; for one observation arrays `[1, ...]` and None.

    Raises:
      CallboardError: a part is missing or unknown, has another shape than the environment's, or values outside of its
        space.
    """
    sizes: dict[str, int | None] = {}
    arrays = _read(encodings, given, (), sizes, batches)
    if len(set(sizes.values())) > 1:
        raise CallboardError(
            "the parts of the observation disagree on the number of observations: "
            + ", ".join(f"{place} has {'no batch axis' if size is None else size}" for place, size in sizes.items())
        )
    return encoding.encode(encodings, arrays), next(iter(sizes.values()), None)


def _read(encodings: Nest, given: Any, path: tuple[str, ...], sizes: dict[str, int | None], batches: bool) -> Nest:
    if isinstance(encodings, Leaf):
        array = read_numbers(given, f"the observation{place_text(path)}")
        place = f"'{'/'.join(path)}'"
        if array.shape == encodings.shape:
            sizes[place] = None
            return array[np.newaxis]
        if array.shape[1:] != encodings.shape or array.ndim == 0 or len(array) == 0 or not batches:
            raise _unfit(encodings, array, path, batches)
        sizes[place] = len(array)
        return array
    kind: Any = Mapping if isinstance(encodings, dict) else Sequence
    parts = encodings if isinstance(encodings, dict) else dict(enumerate(encodings))
    if not isinstance(given, kind) or isinstance(given, str):
        names = ", ".join(map(repr, parts))
        what = "a mapping with" if isinstance(encodings, dict) else "a tuple of"
        raise CallboardError(f"the observation{place_text(path)} is {type_text(given)}, not {what} the parts {names}")
    try:
        read = [_read(part, given[key], (*path, str(key)), sizes, batches) for key, part in parts.items()]
    except (KeyError, IndexError) as error:
        raise CallboardError(f"the observation{place_text(path)} has no part {error.args[0]!r}") from error
    refuse_other_parts(given, parts, f"the observation{place_text(path)}")
    return dict(zip(encodings, read, strict=True)) if isinstance(encodings, dict) else tuple(read)


def _unfit(leaf: Leaf, given: np.ndarray, path: tuple[str, ...], batches: bool) -> CallboardError:
    dtype = leaf.dtype.name
    batch = f", or {dtype}({', '.join(map(str, ('B', *leaf.shape)))}{'' if leaf.shape else ','}) for a batch of B"
    one = "; give one observation, not a batch" if given.ndim > len(leaf.shape) else ""
    return CallboardError(
        f"the observation{place_text(path)} is {given.dtype.name}{given.shape}, but the environment gives "
        f"{dtype}{leaf.shape}{batch if batches else one}"
    )
