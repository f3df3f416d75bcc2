"""The metadata of a data set, which a stranger may have written: numbers, spaces, and names.

Minari's own reader makes the environment that the metadata name where they have no spaces, which calls any function.
So the spaces are required, and read here.
"""

import json
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ...errors import CallboardError, one_line
from ...files.guarded_files import read_json
from ..batches.space_sizes import DEEPEST, MOST_FEATURES, MOST_NUMBERS
from .episode_columns import fits_in_file

METADATA = "metadata.json"
_SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
_DTYPES = frozenset(
    ["bool", *(f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"]
)


class Metadata(NamedTuple):
    """The metadata of a data set, checked."""

    total_episodes: int
    total_steps: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    entries: Mapping[str, Any]
    """All entries as they are in the file; nothing is known of their values."""


def read_metadata(path: pathlib.Path) -> Metadata:
    """Reads the metadata of a data set; nothing that they name is imported, called or made.

    Args:
      path: the folder with the data set's files.

    Raises:
      CallboardError: they are damaged, or of a format or spaces that are not read.
    """
    try:
        found = read_json(path / METADATA)
    except (OSError, ValueError) as error:
        raise CallboardError(f"{METADATA} {_reason(error)}") from error
    if not isinstance(found, dict):
        raise CallboardError(f"{METADATA} is no mapping of names to values")
    if found.get("data_format") != "hdf5":
        raise CallboardError(f"its data_format is {found.get('data_format')!r}, and only 'hdf5' is read")
    episodes, steps = _count(found, "total_episodes"), _count(found, "total_steps")
    if steps < episodes:
        raise CallboardError(f"{METADATA} counts {episodes:,} episodes with {steps:,} steps together")
    return Metadata(episodes, steps, _space(found, "observation_space"), _space(found, "action_space"), found)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return f"is damaged: {one_line(error)}"


def _count(found: Mapping[str, Any], name: str) -> int:
    count = found.get(name)
    if type(count) is not int or count < 0:
        raise CallboardError(f"{name} in {METADATA} is {_shown(count)}, not a number of at least 0")
    return count


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _space(found: Mapping[str, Any], name: str) -> spaces.Space[Any]:
    from minari.serialization import deserialize_space

    text = found.get(name)
    if not isinstance(text, str):
        raise CallboardError(
            f"{METADATA} has no {name}, and the environment that it may name is not made to find it out: write the "
            f"{name} into it, as minari.serialization.serialize_space gives it"
        )
    try:
        described = json.loads(text)  # Bounds may be infinite, which JSON has no number for.
        elements = list(_elements(described, ()))
        if not elements or not all(elements):
            raise CallboardError("it has a part with nothing in it" if elements else "it has no parts")
        if sum(elements) > MOST_NUMBERS:
            raise CallboardError(f"it has {sum(elements):,} elements, more than {MOST_NUMBERS:,}")
        return deserialize_space(described)
    except Exception as error:  # Minari and Gymnasium take what is in it as it is.
        raise CallboardError(f"the {name} in {METADATA} cannot be used: {one_line(error)}") from error


def _elements(space: Any, path: tuple[str, ...]) -> Iterator[int]:
    """Yields the number of elements of each array in a described space.

    Raises:
      CallboardError: it is of a kind that is not read, or too large.
      KeyError, TypeError, ValueError: it is damaged.
    """
    place = f" at {'/'.join(path)!r}" if path else ""
    kind = space["type"]
    if kind not in _SPACES:
        raise CallboardError(f"the space {_shown(kind)}{place} is not supported: {', '.join(_SPACES)} are")
    if len(path) > DEEPEST:
        raise CallboardError(f"it is nested deeper than {DEEPEST} levels")
    if kind in ("Dict", "Tuple"):
        inner = space["subspaces"]
        parts = inner.items() if kind == "Dict" else enumerate(inner)
        for key, part in parts:
            if kind == "Dict" and not fits_in_file(key):
                raise CallboardError(f"its part {key!r}{place} has a name that no HDF5 file can hold")
            yield from _elements(part, (*path, str(key)))
        return
    if kind == "Box" and space["dtype"] not in _DTYPES:
        raise CallboardError(f"the dtype {_shown(space['dtype'])}{place} is not one of numbers")
    sizes: Any = {"Box": lambda: space["shape"], "MultiBinary": lambda: space["n"]}.get(kind, lambda: ())()
    shape = [sizes] if type(sizes) is int else list(sizes)
    if not all(type(size) is int and size >= 0 for size in shape):
        raise CallboardError(f"the shape {_shown(shape)}{place} is none")
    choices = {"Discrete": lambda: [space["n"]], "MultiDiscrete": lambda: space["nvec"]}.get(kind, lambda: ())()
    numbers = np.asarray(choices, object).ravel().tolist()
    for number in numbers:
        if type(number) is not int or not 0 < number <= MOST_FEATURES:
            raise CallboardError(f"the {_shown(number)} choices{place} are not from 1 to {MOST_FEATURES:,}")
    yield len(numbers) if kind == "MultiDiscrete" else math.prod(shape)
