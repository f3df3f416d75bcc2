"""Conversion between an environment's native values and those that agents use.

Agents use float32 for all floating-point numbers, int32 for choices, numbered from 0, and images of height x width x
channels.  An *encoding* is a nest of dictionaries and tuples with `Leaf` objects; it describes the conversion in both
directions, for one environment.
"""

import dataclasses
import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tree
from dm_env import specs

from ...data import Nest
from ...errors import CallboardError, check_text
from ...specs import EnvironmentSpec, MultiDiscreteArray, has_channels_first, named_parts
from .observation_values import as_choices, as_integers, check_numbers, place_text
from .space_sizes import check_sizes

_MOST_VALUES = 10_000
"""Largest number of values of an action's integer."""


@dataclasses.dataclass(frozen=True, eq=False)
class Leaf:
    """One array of an observation or an action."""

    spec: specs.Array
    """Spec of the agent's array."""
    dtype: np.dtype
    """Dtype of the environment's array."""
    start: Any = None
    """The environment's value, or array of values, that corresponds to the agent's 0; None if it is 0."""
    channels_first: bool = False
    """Whether the environment's array is an image of channels x height x width."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Leaf) and (
            (self.spec, self.dtype, self.channels_first) == (other.spec, other.dtype, other.channels_first)
            and np.array_equal(self.first, other.first)
        )

    @property
    def first(self) -> Any:
        """The environment's value that corresponds to the agent's 0, or an array of them."""
        return 0 if self.start is None else self.start

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the environment's array."""
        shape = tuple(self.spec.shape)
        return (shape[2], *shape[:2]) if self.channels_first else shape


class EnvironmentEncoding(NamedTuple):
    """The encodings of an environment's observations and actions."""

    observation: Nest
    action: Nest

    def spec(self) -> EnvironmentSpec:
        """Returns the specs of the agent's arrays, with this encoding.

        Raises:
          CallboardError: there is too much in them, see `space_sizes`.
        """
        observation, action = specs_in(self.observation), specs_in(self.action)
        check_sizes(observation, action)
        return EnvironmentSpec(observation, action, self)


def encoding_of(environment: EnvironmentSpec) -> EnvironmentEncoding:
    """Returns the encoding of an environment, which converts nothing if its spec has none."""
    if environment.encoding is not None:
        return environment.encoding
    return EnvironmentEncoding(_unchanged(environment.observation), _unchanged(environment.action))


def choice(num_values: int, dtype: Any, start: int = 0) -> Leaf:
    """Encodes one choice among `num_values` values, which the environment numbers from `start`.

    Raises:
      CallboardError: the dtype cannot hold the last one.
    """
    _check_last(int(start) + int(num_values) - 1, dtype)
    return Leaf(specs.DiscreteArray(num_values, dtype=np.int32), np.dtype(dtype), start or None)


def choices(num_values: np.ndarray, dtype: Any, start: Any = 0) -> Leaf:
    """Encodes an array of choices: int array `num_values` of any shape, numbered from `start` (an int or an array).

    Raises:
      CallboardError: the dtype cannot hold the last one.
    """
    last = np.asarray(num_values, object) + np.asarray(start, object) - 1
    _check_last(max(np.ravel(last).tolist(), default=0), dtype)
    return Leaf(MultiDiscreteArray(num_values), np.dtype(dtype), start if np.any(start) else None)


def _check_last(value: int, dtype: Any) -> None:
    if value > np.iinfo(np.int64).max or (np.dtype(dtype).kind in "iu" and value > np.iinfo(dtype).max):
        raise CallboardError(
            f"the last value of a discrete space is {value}, which {np.dtype(dtype).name} cannot hold: let its values "
            "begin at a smaller number"
        )


def bounded_integers(shape: Sequence[int], dtype: Any, minimum: Any, maximum: Any) -> Leaf:
    """Encodes an action array of integers with bounds as choices.

    Raises:
      CallboardError: there are too many of them to choose among.
    """
    low, high = (np.broadcast_to(bound, tuple(shape)).astype(object) for bound in (minimum, maximum))
    sizes = np.array(high - low + 1, object)
    if sizes.size and sizes.max() > _MOST_VALUES:
        raise CallboardError(
            f"an action of {np.dtype(dtype).name}{tuple(shape)} has {sizes.max():,} values, too many to choose among: "
            "give the environment bounds that are closer, or floats"
        )
    if shape == ():
        return choice(int(sizes), dtype, int(low))
    return choices(sizes.astype(np.int64), dtype, low.astype(np.int64))


def numbers(shape: Sequence[int], dtype: Any, minimum: Any = -np.inf, maximum: Any = np.inf) -> Leaf:
    """Encodes an observation array of numbers: a `BoundedArray` if any bound is finite, else an `Array`."""
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
    """Encodes an action array of numbers: always a `BoundedArray`, with infinite bounds where there are none."""
    dtype = np.dtype(dtype)
    seen = _seen_dtype(dtype)
    with np.errstate(over="ignore"):
        low, high = np.asarray(minimum).astype(seen), np.asarray(maximum).astype(seen)
    if seen != dtype:
        # 0.1 as float32 lies above 0.1 as float64: the environment would reject an action at the bound.
        low = np.where(low < minimum, np.nextafter(low, seen.type(np.inf)), low)
        high = np.where(high > maximum, np.nextafter(high, seen.type(-np.inf)), high)
    return Leaf(specs.BoundedArray(tuple(shape), seen, low, high), dtype)


def specs_in(encoding: Nest) -> Nest:
    """Returns the dm_env specs of the agent's arrays."""
    return tree.map_structure(lambda leaf: leaf.spec, encoding)


def with_parts(spec: EnvironmentSpec, parts: Mapping[str, Nest], whose: str) -> EnvironmentSpec:
    """Returns the spec of an environment whose observations have further parts.

    An observation that is no dictionary of names becomes the part `observation`.

    Args:
      spec: the environment's spec.
      parts: the encoding of each part.
      whose: whose observations these are, for the message.

    Raises:
      CallboardError: there is such a part already.
    """
    own = encoding_of(spec)
    there = named_parts(own.observation)
    for name in parts:
        if name in there:
            raise CallboardError(f"the observation of {whose} has a part {name!r} already: leave the option out")
    return EnvironmentEncoding({**there, **parts}, own.action).spec()


def with_part_values(observation: Nest, values: Mapping[str, Nest]) -> dict[str, Nest]:
    """Returns an observation with the values of further parts, as `with_parts`."""
    return {**named_parts(observation), **values}


def stack(encoding: Nest, values: Sequence[Any], path: tuple[str, ...] = ()) -> Nest:
    """Stacks and encodes the observations of B environments as a nest of new arrays `[B, ...]`.

    Args:
      encoding: the encoding of one environment's observations.
      values: the observation of each environment.
      path: names of the parts that contain them, for messages.

    Raises:
      CallboardError: a part is missing, has another shape, or contains values that its space does not.
    """
    if isinstance(encoding, Leaf):
        return _encode_leaf(encoding, values, path)
    if isinstance(encoding, dict):
        return {key: stack(part, _parts(values, key), (*path, str(key))) for key, part in encoding.items()}
    return tuple(stack(part, _parts(values, index), (*path, str(index))) for index, part in enumerate(encoding))


def encode(encoding: Nest, batch: Any, path: tuple[str, ...] = (), role: str = "observation") -> Nest:
    """Encodes values that are already batched as a nest of new arrays `[B, ...]`; see `stack`.

    Messages call them by their `role`, which is `action` for recorded actions.
    """
    if isinstance(encoding, Leaf):
        return _encode_leaf(encoding, batch, path, role)
    if isinstance(encoding, dict):
        return {key: encode(part, part_at(batch, key), (*path, str(key)), role) for key, part in encoding.items()}
    return tuple(encode(part, part_at(batch, index), (*path, str(index)), role) for index, part in enumerate(encoding))


def decode(encoding: Nest, actions: Nest, batch_size: int) -> Nest:
    """Decodes agents' actions `[B, ...]` to a nest of new arrays `[B, ...]` in the environment's dtypes and values."""
    if isinstance(encoding, Leaf):
        # Copy, because an environment may modify its action, and the actor's record still refers to `actions`.
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
    """Decodes agents' actions `[B, ...]` to a list of B actions of single environments."""
    return _rows(encoding, decode(encoding, actions, batch_size))


def encode_one(encoding: Nest, observation: Any, path: tuple[str, ...] = ()) -> Nest:
    """Encodes the observation of one environment as a nest of new arrays `[...]`; see `stack`."""
    if isinstance(encoding, Leaf):
        return _encode_leaf(encoding, (observation,), path)[0]
    if isinstance(encoding, dict):
        return {key: encode_one(part, part_at(observation, key), (*path, str(key))) for key, part in encoding.items()}
    places = enumerate(encoding)
    return tuple(encode_one(part, part_at(observation, index), (*path, str(index))) for index, part in places)


def decode_one(encoding: Nest, action: Nest) -> Nest:
    """Decodes an agent's action in one environment: ints for single choices, and otherwise new arrays `[...]`."""
    if isinstance(encoding, Leaf):
        if isinstance(encoding.spec, specs.DiscreteArray):
            return int(action) + int(encoding.start or 0)
        array = np.array(action, encoding.dtype)
        return array if encoding.start is None else np.asarray(array + np.asarray(encoding.start, array.dtype))
    if isinstance(encoding, dict):
        return {key: decode_one(part, action[key]) for key, part in encoding.items()}
    return tuple(decode_one(part, action[index]) for index, part in enumerate(encoding))


def _rows(encoding: Nest, batch: Nest) -> list[Any]:
    if isinstance(encoding, Leaf):
        # Gymnasium checks a Python integer ten times as fast as a NumPy integer.
        if isinstance(encoding.spec, specs.DiscreteArray):
            return batch.tolist()
        # Arrays of shape () in a list of one axis would be NumPy's numbers.
        return list(batch) if batch.ndim > 1 else [batch[index, ...] for index in range(len(batch))]
    if isinstance(encoding, dict):
        columns = [_rows(part, batch[key]) for key, part in encoding.items()]
        return [dict(zip(encoding, row, strict=True)) for row in zip(*columns, strict=True)]
    return list(zip(*(_rows(part, batch[index]) for index, part in enumerate(encoding)), strict=True))


def _parts(values: Sequence[Any], key: Any) -> list[Any]:
    return [part_at(value, key) for value in values]


def check_keys(keys: Iterable[Any], what: str) -> None:
    """Raises `CallboardError` if keys of a dictionary in an environment's spaces are no UTF-8, or have no order.

    Args:
      keys: the keys.
      what: what the dictionary is, for the message.
    """
    keys = list(keys)
    for key in keys:
        check_text(key, f"{what} has the key")
    try:
        sorted(keys)
    except TypeError as error:
        shown = ", ".join(map(repr, keys))
        raise CallboardError(f"{what} has keys of different types, {shown}: name all of its parts by text") from error


def part_at(value: Any, key: Any) -> Any:
    """Returns a part of an environment's observation; raises `CallboardError` if it is missing."""
    try:
        return value[key]
    except (KeyError, IndexError, TypeError) as error:
        raise CallboardError(f"the environment gives an observation without the part {key!r} of its space") from error


def _encode_leaf(leaf: Leaf, values: Any, path: tuple[str, ...], role: str = "observation") -> np.ndarray:
    spec = leaf.spec
    is_float = spec.dtype.kind == "f"
    try:
        if is_float:
            check_numbers(values, path, role)
        # Everything that is not a float keeps its own dtype until its values are known to fit.
        array = np.array(values, spec.dtype if is_float else None)
        if array.dtype == object:
            array = np.array(values, spec.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise CallboardError(
            f"the environment gives an {role}{place_text(path)} that is not {spec.dtype.name}{spec.shape}: {error}"
        ) from error
    if leaf.channels_first and array.ndim == 4:
        array = np.ascontiguousarray(np.moveaxis(array, 1, -1))
    if array.shape[1:] != spec.shape:
        # The environment may have returned a batch where a single observation is expected.
        batch = "; a batch of environments must be a gymnasium.vector.VectorEnv or a callboard BatchedEnvironment"
        raise CallboardError(
            f"the environment gives an {role} of shape {array.shape[1:]}{place_text(path)} where its spec says "
            f"{spec.shape}" + (batch if array.ndim > 2 and array.shape[2:] == spec.shape else "")
        )
    if is_float:
        return array
    if isinstance(spec, specs.DiscreteArray | MultiDiscreteArray):
        return as_choices(array, spec.num_values, leaf.start, path, role)
    return as_integers(array, spec.dtype, path, role)


def _unchanged(part: Nest) -> Nest:
    if isinstance(part, Mapping):
        return {key: _unchanged(inner) for key, inner in part.items()}
    if isinstance(part, list | tuple):
        return tuple(_unchanged(inner) for inner in part)
    return Leaf(part, np.dtype(part.dtype))


def _seen_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if np.issubdtype(dtype, np.floating) else dtype


@functools.lru_cache(maxsize=64)
def _report_channels_first(shape: tuple[int, ...]) -> None:
    """Logs a warning, once per process and shape."""
    channels, height, width = shape
    logging.warning(
        "observations of shape %s have their channels first: agents see %s", shape, (height, width, channels)
    )
