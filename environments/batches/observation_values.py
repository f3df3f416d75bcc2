"""Conversion of values to the dtypes of their spaces, without changing any value silently."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tree

from ...data import Nest
from ...errors import CallboardError


def place_text(path: Sequence[str]) -> str:
    """Returns ` at 'arm/angle'` for the path of a part of an observation; empty for the whole."""
    return f" at '{'/'.join(path)}'" if path else ""


def check_finite_observation(observation: Nest) -> None:
    """Raises `CallboardError` if an observation, a nest of arrays, contains NaN or an infinity."""
    for path, leaf in tree.flatten_with_path(observation):
        if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
            value = leaf[~np.isfinite(leaf)][0]
            raise CallboardError(f"the observation{place_text([str(key) for key in path])} contains {value}, no number")


def as_choices(
    array: np.ndarray, num_values: Any, start: Any, path: Sequence[str], role: str = "observation"
) -> np.ndarray:
    """Returns choices numbered from 0.

    Args:
      array: numbers `[B, ...]`, as the environment gives them.
      num_values: the number of values of each choice, an int or an array `[...]`.
      start: the environment's number of the first value, an int or an array `[...]`; None for 0.
      path: names of the parts that contain the choices, for messages.
      role: what they are, `observation` or `action`, for messages.

    Returns:
      A new array, int32 `[B, ...]`.

    Raises:
      CallboardError: a number is not among the values.
    """
    numbers = _whole_numbers(array, np.dtype(np.int64), path, role)
    if start is not None:
        numbers = numbers - start
    # Negative numbers become large ones, so that one comparison is enough.
    outside = numbers.view(np.uint64) >= num_values
    if outside.any():
        first = tuple(np.argwhere(outside)[0])
        count = int(np.broadcast_to(num_values, array.shape[1:])[first[1:]])
        low = 0 if start is None else int(np.broadcast_to(start, array.shape[1:])[first[1:]])
        values = f"{low}" if count == 1 else f"{low} to {low + count - 1}"
        raise CallboardError(
            f"the {role}{place_text(path)} is {array[first]}, which is outside of its space, {values}: correct the "
            f"space, or the {role}"
        )
    return numbers.astype(np.int32)


def as_integers(array: np.ndarray, dtype: np.dtype, path: Sequence[str], role: str = "observation") -> np.ndarray:
    """Returns numbers as integers or bools of a dtype.

    Args:
      array: numbers `[B, ...]`, as the environment gives them.
      dtype: dtype of the space.
      path: names of the parts that contain them, for messages.
      role: as in `as_choices`.

    Raises:
      CallboardError: the dtype cannot hold one of the numbers.
    """
    return array if array.dtype == dtype else _whole_numbers(array, dtype, path, role)


def check_numbers(values: Any, path: Sequence[str], role: str = "observation") -> None:
    """Raises `CallboardError` if values, a batch or one for each environment, are texts or dates, which NumPy converts.

    Args:
      values: an array `[B, ...]`, or a sequence of what environments give.
      path: names of the parts that contain them, for messages.
      role: what they are, as in `as_choices`.
    """
    for given in (values,) if isinstance(values, np.ndarray) else values:
        array = given if isinstance(given, np.ndarray | np.generic) else np.asarray(given)
        if array.dtype.kind not in "biufO":
            raise CallboardError(f"the {role}{place_text(path)} is of type {array.dtype}, not of numbers")


def _whole_numbers(array: np.ndarray, dtype: np.dtype, path: Sequence[str], role: str) -> np.ndarray:
    if array.dtype == dtype:
        return array
    check_numbers(array, path, role)
    if array.dtype == object:
        raise CallboardError(f"the {role}{place_text(path)} is of type object, not of numbers")
    with np.errstate(invalid="ignore"):
        cast = array.astype(dtype)
    changed = cast != array
    if changed.any():
        value = array[changed][0]
        fix = f"give the space a dtype that holds all values, or correct the {role}"
        if array.dtype.kind == "f" and value == value and value % 1:
            fix = f"give the space a dtype of floats, or the {role} whole numbers"
            if dtype == np.uint8:
                fix = "images have values from 0 to 255, or a space of floats, such as Box(0, 1, dtype=np.float32)"
        raise CallboardError(
            f"the {role}{place_text(path)} contains {value:g}, which {dtype.name}, the dtype of its space, cannot "
            f"hold: {fix}"
        )
    return cast
