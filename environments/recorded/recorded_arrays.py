"""Reads the arrays of a recorded episode, each checked against its space: nothing is reshaped, wrapped or clipped.

Numbers of an environment that are floats become float32 for agents, which may move them past a bound by rounding.
"""

import io
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tree
from dm_env import specs
from gymnasium import spaces

from ...action_masks import MASK, flat_mask, forbidden_action, has_mask, illegal_rows
from ...data import Nest
from ...errors import CallboardError
from ...specs import EnvironmentSpec, MultiDiscreteArray
from ..batches import encoding
from ..batches.encoding import Leaf
from ..batches.observation_values import place_text
from .episode_columns import is_picture
from .guarded_hdf5 import GuardedArray, GuardedEpisode

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Modes of pictures by their channels."""


class ArrayReader:
    """Reads nests of arrays from an episode.

    Args:
      episode: its arrays.
      length: number of its actions.
      all_pictures: whether all pictures are decoded, or the first of each array alone, which then stands for all.
    """

    def __init__(self, episode: GuardedEpisode, length: int, all_pictures: bool):
        self._episode = episode
        self._length = length
        self._all_pictures = all_pictures

    def read(self, role: str, space: spaces.Space[Any], encodings: Nest) -> Nest:
        """Returns an agent's arrays, `[T + 1, ...]` of observations and `[T, ...]` of actions.

        Args:
          role: `observation` or `action`.
          space: the space of the environment's own values, which are in the file.
          encodings: their encoding.

        Raises:
          CallboardError: an array is missing, or does not fit its space.
        """
        return self._read(role, (f"{role}s",), space, encodings)

    def _read(self, role: str, path: tuple[str, ...], space: spaces.Space[Any], encodings: Nest) -> Nest:
        if isinstance(space, spaces.Dict | spaces.Tuple):
            is_dict = isinstance(space, spaces.Dict)
            parts: Any = space.spaces if is_dict else {f"_index_{place}": one for place, one in enumerate(space.spaces)}
            surplus = sorted(set(self._episode.names(*path)) - set(parts))
            if surplus:
                raise CallboardError(f"{'/'.join((*path, surplus[0]))} is no part of its space")
            keys = list(parts) if is_dict else range(len(parts))
            read = [
                self._read(role, (*path, name), part, encodings[key])
                for key, (name, part) in zip(keys, parts.items(), strict=True)
            ]
            return dict(zip(parts, read, strict=True)) if is_dict else tuple(read)
        if is_picture(space):
            return self._pictures(self._episode.array(*path), space)
        found = self._episode.array(*path, itemsize=encodings.spec.dtype.itemsize)
        return self._numbers(role, path[1:], found, encodings)

    def _rows(self, where: str) -> int:
        return self._length + where.startswith("observation")

    def _check_shape(self, found: GuardedArray, shape: tuple[int, ...]) -> None:
        """Raises `CallboardError` if an array has not one element of a shape for each timestep or action."""
        rows = self._rows(found.where)
        if found.shape == (rows, *shape):
            return
        why = f"one for each of its {self._length:,} rewards"
        if rows > self._length:
            why += " and one after the last action"
            if found.shape == (self._length, *shape):
                why += ": the last observation is missing"
        raise CallboardError(f"{found.where} has the shape {found.shape}, and needs {(rows, *shape)}, {why}")

    def _numbers(self, role: str, place: tuple[str, ...], found: GuardedArray, leaf: Leaf) -> np.ndarray:
        self._check_shape(found, leaf.shape)
        kinds = "biuf" if leaf.dtype.kind == "f" else "biu"
        if found.dtype.kind not in kinds:
            raise CallboardError(f"{found.where} is of type {found.dtype}, and its space of {leaf.dtype}")
        with np.errstate(over="ignore", invalid="ignore"):
            array = encoding.encode(leaf, found.read(), place, role)
        spec = leaf.spec
        if isinstance(spec, specs.DiscreteArray | MultiDiscreteArray):
            return array  # Choices have been compared with their numbers of values.
        if spec.dtype.kind == "f":
            refuse_rows(~np.isfinite(array), array, f"the {role}{place_text(place)}", "which is no finite number")
        if not isinstance(spec, specs.BoundedArray) or role == "observation":
            return array  # Observations outside of their bounds are learned from, as those of environments.
        refuse_outside(array, spec, place, "its space")
        # Clips what rounding has moved.
        return np.clip(array, spec.minimum, spec.maximum) if spec.dtype.kind == "f" else array

    def _pictures(self, found: GuardedArray, space: spaces.Space[Any]) -> np.ndarray:
        """Returns pictures, which a file holds as they are in files of their own: PNG or JPEG."""
        from PIL import Image

        shape = tuple(space.shape or ())
        rows = self._rows(found.where)
        if len(found.shape) not in (1, 2) or found.shape[0] != rows or (len(found.shape) == 1) != found.holds_bytes:
            raise CallboardError(
                f"{found.where} is {found.dtype}{found.shape}, and not one file of a picture for each of {rows:,} "
                "timesteps"
            )
        self._episode.claim(rows * math.prod(shape))
        lengths = found.lengths() if found.holds_bytes else []
        self._episode.claim(sum(lengths))
        height, width = shape[:2]
        mode = _MODES.get(shape[2] if len(shape) == 3 else 1)
        files = found.rows(lengths) if found.holds_bytes else found.read()
        pictures = np.empty((rows, *shape), np.uint8)
        for row, content in enumerate(itertools.islice(files, None if self._all_pictures else 1)):
            # Other formats are opened by other programs.
            with Image.open(io.BytesIO(np.asarray(content, np.uint8).tobytes()), formats=("PNG", "JPEG")) as picture:
                if (picture.width, picture.height, picture.mode) != (width, height, mode):
                    raise CallboardError(
                        f"picture {row} of {found.where} is {picture.mode} of {picture.width} x {picture.height}, and "
                        f"its space {mode} of {width} x {height}"
                    )
                pictures[row] = np.asarray(picture, np.uint8).reshape(shape)
        if not self._all_pictures:
            pictures[1:] = pictures[0]
        return pictures


def refuse_rows(wrong: np.ndarray, array: np.ndarray, what: str, why: str) -> None:
    """Raises `CallboardError` for the first element of `array` that is wrong, with its row."""
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise CallboardError(f"{what} of step {at[0]:,} is {array[at]:g}, {why}")


def refuse_illegal(spec: EnvironmentSpec, observation: Nest, action: Nest) -> None:
    """Raises `CallboardError` for the first action mask of an episode that is none, or action that its mask forbids.

    Args:
      spec: the spec of the data set, whose mask, if it has one, fits its actions.
      observation: arrays `[T + 1, ...]`, of which the last may have a mask that allows nothing.
      action: arrays `[T, ...]`.
    """
    if not has_mask(spec.observation):
        return
    mask = flat_mask(observation)
    refuse_rows((mask != 0) & (mask != 1), mask, f"the '{MASK}'", "which is neither 1, for what is allowed, nor 0")
    before = tree.map_structure(lambda leaf: leaf[:-1], observation)
    nothing = illegal_rows(spec, before)
    if nothing.size:
        raise CallboardError(
            f"the '{MASK}' of step {nothing[0]:,} allows nothing, and an action follows: let the episode end there, or "
            "allow what was done"
        )
    forbidden = forbidden_action(spec, before, action)
    if forbidden is not None:
        raise CallboardError(
            f"the action{place_text(forbidden.path)} of step {forbidden.row:,} is {forbidden.value}, which the "
            f"'{MASK}' of its observation forbids: correct one of them, or leave the episode out"
        )


def refuse_outside(array: np.ndarray, spec: specs.Array, place: Sequence[str], whose: str) -> None:
    """Raises `CallboardError` for the first element of actions `[T, ...]` outside of the bounds of their spec.

    Args:
      array: the actions.
      spec: the spec of one of them.
      place: names of the parts that contain it.
      whose: whose bounds these are.
    """
    if not isinstance(spec, specs.BoundedArray):
        return
    slack = float(np.finfo(np.float32).eps)
    outside = (array < _with_slack(np.asarray(spec.minimum), -slack)) | (
        array > _with_slack(np.asarray(spec.maximum), slack)
    )
    refuse_rows(outside, array, f"the action{place_text(place)}", f"which is outside of the bounds of {whose}")


def _with_slack(bound: np.ndarray, slack: float) -> np.ndarray:
    """Returns a bound that leaves room for rounding, if it is one of floats."""
    if bound.dtype.kind != "f":
        return bound
    with np.errstate(over="ignore"):
        return (bound + slack * np.maximum(1.0, np.abs(np.where(np.isfinite(bound), bound, 0)))).astype(bound.dtype)
