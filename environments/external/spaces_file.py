"""The spaces of a simulator as JSON, for simulators that Callboard cannot step itself.

    {"observation": {"type": "Box", "shape": [4], "low": -1, "high": 1, "dtype": "float32"},
     "action": {"type": "Discrete", "n": 2}}

The types are those of Gymnasium: `Box`, `Discrete`, `MultiDiscrete`, `MultiBinary`, `Dict` and `Tuple`.
"""

import errno
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from ...errors import CallboardError, one_line, unknown, writing
from ...files.atomic_files import write_file
from ...files.guarded_files import read_regular
from ..batches.space_sizes import check_array, check_depth
from ..batches.spec_files import plain_bound

_MOST_BYTES = 2**24


def read_spaces(path: str | os.PathLike[str]) -> tuple[spaces.Space, spaces.Space]:
    """Returns the observation space and the action space in a file.

    Raises:
      CallboardError: there is no such file, or it does not describe two spaces.
    """
    try:
        text = read_regular(os.path.realpath(path), _MOST_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.EFBIG:
            text = f"spaces file {path} has more than {_MOST_BYTES // 2**20} MiB: give bounds as numbers"
            raise CallboardError(text) from error
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CallboardError(f"spaces file {path} cannot be read: {reason}") from error
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CallboardError(f"spaces file {path} is not JSON: {one_line(error)}") from error
    try:
        if not isinstance(content, dict) or set(content) != {"observation", "action"}:
            raise CallboardError('write {"observation": SPACE, "action": SPACE}')
        return _space(content["observation"], "observation"), _space(content["action"], "action")
    except CallboardError as error:
        raise CallboardError(f"spaces file {path}: {error}") from error


def write_spaces(path: str | os.PathLike[str], observation: spaces.Space, action: spaces.Space) -> None:
    """Writes the spaces of an environment, as `read_spaces` reads them.

    Args:
      path: the file.
      observation: the observation space, of Gymnasium.
      action: the action space.

    Raises:
      CallboardError: a space is of another type than those that can be written, or the file cannot be written.
    """
    content = {"observation": _described(observation), "action": _described(action)}
    with writing(path):
        write_file(pathlib.Path(path), json.dumps(content, indent=1) + "\n")


def _space(content: Any, place: str) -> spaces.Space:
    if not isinstance(content, Mapping) or not isinstance(content.get("type"), str):
        raise CallboardError(f'{place} must be a space such as {{"type": "Discrete", "n": 2}}')
    role, *path = place.split("/")
    check_depth(role, path)
    kind = content["type"]
    if kind not in _READERS:
        raise unknown(f"space at {place}:", kind, _READERS)
    read, needed, optional = _READERS[kind]
    for key in content:
        if key not in ("type", *needed, *optional):
            raise unknown(f"key of the {kind} at {place}:", key, (*needed, *optional))
    for key in needed:
        if key not in content:
            raise CallboardError(f"the {kind} at {place} has no {key!r}")
    try:
        return read(content, place)
    except CallboardError:
        raise
    # Gymnasium checks with assertions; what is in the file may be of any type.
    except (AssertionError, TypeError, ValueError, OverflowError, AttributeError, MemoryError) as error:
        raise CallboardError(f"the {kind} at {place} is no space: {one_line(error)}") from error


def _box(content: Mapping[str, Any], place: str) -> spaces.Space:
    shape, dtype = tuple(int(size) for size in content["shape"]), np.dtype(content.get("dtype", "float32"))
    _check_array(shape, place)
    if dtype.kind not in "biuf":
        raise ValueError(f"dtype {dtype.name} is not one of numbers")
    bounds = [_bound(content.get(key), infinity, dtype, shape) for key, infinity in (("low", -1), ("high", 1))]
    make: Callable[..., spaces.Space] = spaces.Box
    return make(*bounds, shape=shape, dtype=dtype.type)


def _check_array(shape: Sequence[int], place: str) -> None:
    role, *path = place.split("/")
    check_array(shape, role, path)


def _bound(value: Any, sign: int, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    """Returns a bound, for which null stands for the lowest or highest number."""
    if value is None:
        return sign * np.inf if dtype.kind == "f" else _extreme(dtype, sign)
    if isinstance(value, list):
        return np.array([_bound(item, sign, dtype, ()) for item in value], dtype).reshape(shape)
    return value


def _extreme(dtype: np.dtype, sign: int) -> int:
    if dtype.kind == "b":
        return int(sign > 0)
    limits = np.iinfo(dtype)
    return int(limits.max if sign > 0 else limits.min)


def _discrete(content: Mapping[str, Any], place: str) -> spaces.Space:
    return spaces.Discrete(content["n"], start=content.get("start", 0))


def _multi_discrete(content: Mapping[str, Any], place: str) -> spaces.Space:
    return spaces.MultiDiscrete(np.array(content["nvec"], np.int64))


def _multi_binary(content: Mapping[str, Any], place: str) -> spaces.Space:
    _check_array(content["n"] if isinstance(content["n"], list) else [content["n"]], place)
    return spaces.MultiBinary(content["n"])


def _dict(content: Mapping[str, Any], place: str) -> spaces.Space:
    return spaces.Dict({name: _space(part, f"{place}/{name}") for name, part in content["spaces"].items()})


def _tuple(content: Mapping[str, Any], place: str) -> spaces.Space:
    return spaces.Tuple([_space(part, f"{place}/{index}") for index, part in enumerate(content["spaces"])])


_Reader = Callable[[Mapping[str, Any], str], spaces.Space]
_READERS: dict[str, tuple[_Reader, tuple[str, ...], tuple[str, ...]]] = {
    "Box": (_box, ("shape",), ("low", "high", "dtype")),
    "Discrete": (_discrete, ("n",), ("start",)),
    "MultiDiscrete": (_multi_discrete, ("nvec",), ()),
    "MultiBinary": (_multi_binary, ("n",), ()),
    "Dict": (_dict, ("spaces",), ()),
    "Tuple": (_tuple, ("spaces",), ()),
}
"""The reader of each type of space, and the keys that it must and may have."""


def _described(space: spaces.Space) -> dict[str, Any]:
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return {"type": "Discrete", "n": int(space.n), **({"start": start} if start else {})}
    if isinstance(space, spaces.MultiDiscrete) and not np.any(space.start):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": np.asarray(space.n).tolist()}
    if isinstance(space, spaces.Box):
        bounds = {"low": plain_bound(space.low), "high": plain_bound(space.high)}
        return {"type": "Box", "shape": list(space.shape), **bounds, "dtype": space.dtype.name}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": {str(name): _described(part) for name, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [_described(part) for part in space.spaces]}
    raise CallboardError(f"a spaces file cannot hold {space}; it holds {', '.join(_READERS)}")
