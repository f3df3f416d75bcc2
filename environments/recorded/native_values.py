"""The spaces of an environment, and its own values, from what agents see: the inverse of `environments.encoding`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from dm_env import specs
from gymnasium import spaces

from ...data import Nest
from ...errors import CallboardError
from ...specs import MultiDiscreteArray
from ..batches.encoding import Leaf
from ..batches.infos import repeated


def space_of(encoding: Nest) -> spaces.Space[Any]:
    """Returns the Gymnasium space of the environment's own values; parts of a dictionary have text as their names.

    Raises:
      CallboardError: two parts would have the same name.
    """
    if isinstance(encoding, Mapping):
        twice = repeated([part_name(key) for key in encoding])
        if twice is not None:
            raise CallboardError(
                f"two parts cannot be recorded, since files call both {twice!r}: "
                "rename one with env_wrappers, or leave record_episodes out"
            )
        return spaces.Dict({part_name(key): space_of(part) for key, part in encoding.items()})
    if isinstance(encoding, tuple):
        return spaces.Tuple([space_of(part) for part in encoding])
    return _leaf_space(encoding)


def native_values(encoding: Nest, values: Nest) -> Nest:
    """Returns an agent's arrays `[T, ...]` in the environment's dtypes, numbering and order of axes."""
    if isinstance(encoding, Mapping):
        return {part_name(key): native_values(part, values[key]) for key, part in encoding.items()}
    if isinstance(encoding, tuple):
        return tuple(native_values(part, values[index]) for index, part in enumerate(encoding))
    array = np.asarray(values)
    if encoding.channels_first:
        array = np.moveaxis(array, -1, 1)
    array = array.astype(encoding.dtype, copy=False)
    return array if encoding.start is None else array + np.asarray(encoding.start, array.dtype)


def part_name(key: Any) -> str:
    """Returns the name of a dictionary's part in a file, where a slash would begin another level."""
    return str(key).replace("/", ".")


def _leaf_space(leaf: Leaf) -> spaces.Space[Any]:
    spec, start = leaf.spec, leaf.start
    if isinstance(spec, specs.DiscreteArray):
        return spaces.Discrete(spec.num_values, start=0 if start is None else int(start))
    if isinstance(spec, MultiDiscreteArray):
        first = np.zeros(spec.shape, np.int64) if start is None else np.broadcast_to(start, spec.shape)
        dtype = leaf.dtype if leaf.dtype.kind in "iu" else np.dtype(np.int64)
        return spaces.MultiDiscrete(spec.num_values, dtype=dtype.type, start=first.astype(dtype))
    if leaf.dtype == np.bool_:
        return spaces.Box(0, 1, leaf.shape, np.bool_)
    if isinstance(spec, specs.BoundedArray):
        low, high = (np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum))
        if leaf.channels_first:
            low, high = np.moveaxis(low, -1, 0), np.moveaxis(high, -1, 0)
    else:
        low, high = (np.full(leaf.shape, bound) for bound in _bounds(leaf.dtype))
    # The bounds of a float64 array became float32 for the agent.
    return spaces.Box(low.astype(leaf.dtype), high.astype(leaf.dtype), leaf.shape, leaf.dtype.type)


def _bounds(dtype: np.dtype) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max
