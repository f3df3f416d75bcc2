"""An episode as named columns, the arrays that a Minari data set in HDF5 holds of it.

Minari writes images as JPEG, which changes them; its reader opens any kind of picture, so these are PNG.
"""

import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ...data import Nest
from ...errors import CallboardError

DISCOUNTS = "callboard_discounts"
"""Column of an episode whose discounts do not follow from its end; Minari, which has no discounts, reads past it."""
_LEAST_SIDE = 32
_CHANNELS = (1, 3, 4)


class EpisodeColumns(NamedTuple):
    """A whole episode of T actions.  Plain arrays and bytes only, so that it can be sent to another node."""

    values: dict[str, Any]
    """Arrays `[T + 1, ...]` of observations and `[T, ...]` of all others, by their paths in the file, or lists of PNG
    pictures."""
    length: int
    """T."""
    seed: int | None
    """The seed with which its environment was reset; None if it was reset without one."""

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, without their names."""
        return sum(
            sum(map(len, column)) if isinstance(column, list) else column.nbytes for column in self.values.values()
        )


class ColumnLeaf(NamedTuple):
    """An array of a nest of the environment's own values."""

    path: str
    """Its path in the file."""
    values: np.ndarray
    """`[T, ...]`."""
    is_picture: bool
    """Whether Minari reads it as pictures."""

    def column(self) -> Any:
        """Returns the values as they are in the file: an array, or a list of PNG pictures."""
        return [_png(frame) for frame in self.values] if self.is_picture else self.values


def leaves_of(space: spaces.Space[Any], values: Nest, path: str) -> Iterator[ColumnLeaf]:
    """Yields the arrays of a nest of the environment's own values `[T, ...]`."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from leaves_of(part, values[key], f"{path}/{key}")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from leaves_of(part, values[index], f"{path}/_index_{index}")
    else:
        yield ColumnLeaf(path, values, is_picture(space))


def check_recordable(observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
    """Raises `CallboardError` if one has names or images that no file of a data set can hold."""
    for part in (*_leaves(observation, "observation"), *_leaves(action, "action")):
        if is_picture(part) and len(part.shape or ()) == 3 and (part.shape or ())[2] not in _CHANNELS:
            raise CallboardError(
                f"images of shape {part.shape} cannot be recorded, since a picture has 1, 3 or 4 channels: leave "
                "record_episodes out, or reshape them with env_wrappers"
            )


def fits_in_file(key: Any) -> bool:
    """Returns whether HDF5 can hold a part of a nest under its key."""
    # HDF5 ends a name at its first NUL, and begins another group after a slash; half a letter is no UTF-8.
    return isinstance(key, str) and key not in ("", ".") and not re.search("[/\\0\ud800-\udfff]", key)


def is_picture(space: spaces.Space[Any]) -> bool:
    """Returns whether Minari reads an array of the space as pictures."""
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) in (2, 3)
        and min(space.shape[:2]) >= _LEAST_SIDE
        and space.dtype == np.uint8
        and bool(np.all(space.low == 0) and np.all(space.high == 255))
    )


def _leaves(space: spaces.Space[Any], path: str) -> Iterator[spaces.Space[Any]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            if isinstance(space, spaces.Dict) and not fits_in_file(key):
                raise CallboardError(
                    f"the part {key!r} of {path} cannot be recorded, since no file of a data set can hold that name: "
                    "leave record_episodes out, or rename the part with env_wrappers"
                )
            yield from _leaves(part, f"{path}/{key}")
    else:
        yield space


def _png(frame: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    frame = frame[..., 0] if frame.ndim == 3 and frame.shape[-1] == 1 else frame
    Image.fromarray(np.ascontiguousarray(frame)).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()
