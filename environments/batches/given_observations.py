"""Observations that do not come from an environment of ours, but from a caller: one of them, or a batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...data import Nest
from ...errors import CallboardError
from . import encoding
from .encoding import Leaf
from .given_numbers import read_numbers
from .observation_values import place_text


def read_observations(encodings: Nest, given: Any, batches: bool = True) -> tuple[Nest, int | None]:
    """Checks and encodes one observation or a batch of them, in the environment's own form.

    Args:
      encodings: the encoding of the environment's observations.
      given: a nest of arrays `[...]` or `[B, ...]`, or of Python numbers and lists of them.
      batches: whether it may be a batch.

    Returns:
      A nest of the agent's arrays `[B, ...]`, and B; for one observation arrays `[1, ...]` and None.

    Raises:
      CallboardError: a part is missing, has another shape than the environment's, or values outside of its space.
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
    parts = list(encodings.items() if isinstance(encodings, dict) else enumerate(encodings))
    if not isinstance(given, kind) or isinstance(given, str):
        names = ", ".join(repr(key) for key, _ in parts)
        what = "a mapping with" if isinstance(encodings, dict) else "a tuple of"
        raise CallboardError(
            f"the observation{place_text(path)} is a {type(given).__name__}, not {what} the parts {names}"
        )
    try:
        read = [_read(part, given[key], (*path, str(key)), sizes, batches) for key, part in parts]
    except (KeyError, IndexError) as error:
        raise CallboardError(f"the observation{place_text(path)} has no part {error.args[0]!r}") from error
    return dict(zip(encodings, read, strict=True)) if isinstance(encodings, dict) else tuple(read)


def _unfit(leaf: Leaf, given: np.ndarray, path: tuple[str, ...], batches: bool) -> CallboardError:
    dtype = leaf.dtype.name
    batch = f", or {dtype}({', '.join(map(str, ('B', *leaf.shape)))}{'' if leaf.shape else ','}) for a batch of B"
    return CallboardError(
        f"the observation{place_text(path)} is {given.dtype.name}{given.shape}, but the environment gives "
        f"{dtype}{leaf.shape}" + (batch if batches else "; give one observation, not a batch")
    )
