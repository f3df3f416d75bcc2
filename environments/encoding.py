"""How the values that an environment uses itself correspond to those that agents see.

Agents see float32 for every floating-point number, int32 for every choice, counted from 0, and images as height x width
x channels.  An *encoding* is a nest of `Leaf`, of dictionaries and tuples; it holds what is needed to go both ways, for
one environment.
"""

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import tree
from dm_env import specs

from ..data import CallboardError, Nest
from ..specs import MultiDiscreteArray, has_channels_first


@dataclasses.dataclass(frozen=True, eq=False)
class Leaf:
    """One array of an observation or an action."""

    spec: specs.Array
    """What agents see."""
    dtype: np.dtype
    """What the environment uses itself."""
    start: Any = None
    """The environment's value, or array of values, for our 0; None where it is 0 too."""
    channels_first: bool = False
    """Whether the environment's images are channels x height x width."""


def choice(num_values: int, dtype: Any, start: int = 0) -> Leaf:
    """One of `num_values` values; the environment counts them from `start`."""
    return Leaf(specs.DiscreteArray(num_values, dtype=np.int32), np.dtype(dtype), start or None)


def choices(num_values: np.ndarray, dtype: Any, start: Any = 0) -> Leaf:
    """Several choices at once: int array `num_values` of any shape, counted from `start` (an int or an array)."""
    return Leaf(MultiDiscreteArray(num_values), np.dtype(dtype), start if np.any(start) else None)


def numbers(shape: Sequence[int], dtype: Any, minimum: Any = -np.inf, maximum: Any = np.inf) -> Leaf:
    """An observed array of numbers: a `BoundedArray` where any of its bounds is finite, else an `Array`."""
    dtype, shape = np.dtype(dtype), tuple(shape)
    seen = _seen_dtype(dtype)
    channels_first = len(shape) == 3 and has_channels_first(shape) is True
    if channels_first:
        _report_channels_first(shape)
    seen_shape = (*shape[1:], shape[0]) if channels_first else shape
    if not (np.any(np.isfinite(minimum)) or np.any(np.isfinite(maximum))):
        return Leaf(specs.Array(seen_shape, seen), dtype, channels_first=channels_first)
    with np.errstate(over="ignore"):
        bounds = [np.asarray(bound).astype(seen) for bound in (minimum, maximum)]
    if channels_first:
        bounds = [np.moveaxis(np.broadcast_to(bound, shape), 0, -1) for bound in bounds]
    return Leaf(specs.BoundedArray(seen_shape, seen, *bounds), dtype, channels_first=channels_first)


def controls(shape: Sequence[int], dtype: Any, minimum: Any = -np.inf, maximum: Any = np.inf) -> Leaf:
    """An array of numbers to act with: a `BoundedArray` always, its bounds infinite where the environment has none."""
    dtype = np.dtype(dtype)
    seen = _seen_dtype(dtype)
    with np.errstate(over="ignore"):
        low, high = np.asarray(minimum).astype(seen), np.asarray(maximum).astype(seen)
    if seen != dtype:
        # 0.1 as float32 lies above 0.1 as float64: an action at the bound would be refused by the environment.
        low = np.where(low < minimum, np.nextafter(low, seen.type(np.inf)), low)
        high = np.where(high > maximum, np.nextafter(high, seen.type(-np.inf)), high)
    return Leaf(specs.BoundedArray(tuple(shape), seen, low, high), dtype)


def spec(encoding: Nest) -> Nest:
    """The dm_env specs that agents see."""
    return tree.map_structure(lambda leaf: leaf.spec, encoding)


def stack(encoding: Nest, values: Sequence[Any]) -> Nest:
    """Observations of B environments, one after the other, as a nest of new arrays `[B, ...]` that agents see."""
    if isinstance(encoding, Leaf):
        return _encode_leaf(encoding, values)
    if isinstance(encoding, dict):
        return {key: stack(part, _parts(values, key)) for key, part in encoding.items()}
    return tuple(stack(part, _parts(values, index)) for index, part in enumerate(encoding))


def encode(encoding: Nest, batch: Any) -> Nest:
    """Observations that the environment has batched already, as a nest of new arrays `[B, ...]` that agents see."""
    if isinstance(encoding, Leaf):
        return _encode_leaf(encoding, batch)
    if isinstance(encoding, dict):
        return {key: encode(part, batch[key]) for key, part in encoding.items()}
    return tuple(encode(part, batch[index]) for index, part in enumerate(encoding))


def decode(encoding: Nest, actions: Nest, batch_size: int) -> Nest:
    """Actions `[B, ...]` of agents as a nest of new arrays `[B, ...]` in the environment's own dtypes and values."""
    if isinstance(encoding, Leaf):
        # A copy: an environment may write into the action it is given, and the actor's record still refers to ours.
        array = np.array(actions, encoding.dtype)
        if array.shape != (batch_size, *encoding.spec.shape):
            raise ValueError(f"actions of shape {array.shape}, expected {(batch_size, *encoding.spec.shape)}")
        if encoding.start is not None:
            array += np.asarray(encoding.start, array.dtype)
        return array
    if isinstance(encoding, dict):
        return {key: decode(part, actions[key], batch_size) for key, part in encoding.items()}
    return tuple(decode(part, actions[index], batch_size) for index, part in enumerate(encoding))


def split(encoding: Nest, actions: Nest, batch_size: int) -> list[Any]:
    """Actions `[B, ...]` of agents as a list of B actions, each as one environment takes it."""
    return _rows(encoding, decode(encoding, actions, batch_size))


def _rows(encoding: Nest, batch: Nest) -> list[Any]:
    if isinstance(encoding, Leaf):
        # Gymnasium checks a Python integer in a tenth of the time that it takes for one of NumPy.
        return batch.tolist() if isinstance(encoding.spec, specs.DiscreteArray) else list(batch)
    if isinstance(encoding, dict):
        columns = [_rows(part, batch[key]) for key, part in encoding.items()]
        return [dict(zip(encoding, row, strict=True)) for row in zip(*columns, strict=True)]
    return list(zip(*(_rows(part, batch[index]) for index, part in enumerate(encoding)), strict=True))


def _parts(values: Sequence[Any], key: Any) -> list[Any]:
    try:
        return [value[key] for value in values]
    except (KeyError, IndexError, TypeError) as error:
        raise CallboardError(f"the environment gives an observation without the part {key!r} of its space") from error


def _encode_leaf(leaf: Leaf, values: Any) -> np.ndarray:
    try:
        array = np.array(values, leaf.spec.dtype)
    except (TypeError, ValueError) as error:
        raise CallboardError(
            f"the environment gives an observation that is not {leaf.spec.dtype.name}{leaf.spec.shape}: {error}"
        ) from error
    if leaf.channels_first and array.ndim == 4:
        array = np.ascontiguousarray(np.moveaxis(array, 1, -1))
    if array.shape[1:] != leaf.spec.shape:
        # A batch where a single environment is expected.
        batch = "; a batch of environments must be a gymnasium.vector.VectorEnv or a callboard BatchedEnvironment"
        raise CallboardError(
            f"the environment gives an observation of shape {array.shape[1:]} where its spec says {leaf.spec.shape}"
            + (batch if array.ndim > 2 and array.shape[2:] == leaf.spec.shape else "")
        )
    if leaf.start is not None:
        array -= np.asarray(leaf.start, array.dtype)
    return array


def _seen_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if np.issubdtype(dtype, np.floating) else dtype


@functools.lru_cache(maxsize=64)
def _report_channels_first(shape: tuple[int, ...]) -> None:
    """Logs a line, once in a process."""
    channels, height, width = shape
    logging.warning(
        "observations of shape %s have their channels first: agents see %s", shape, (height, width, channels)
    )
