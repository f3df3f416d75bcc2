"""The exchange between a worker and the process that uses it: arrays in shared memory, and messages over two pipes.

Actions, which environments wait, and, in two slots by turns, observations, rewards and flags are arrays.  Everything
else is JSON, in which tuples, arrays and mappings are marked.  A message is the length of its JSON and of the bytes
that follow it; most steps need neither.

This module is part of the program of workers (see `worker_process`): Python 3.9 and NumPy are all that it needs.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import select
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

SLOTS = 2
_HEADER = struct.Struct("<II")
_NOTHING = _HEADER.pack(0, 0)
_ALIGNMENT = 64
_SPIN_SECONDS = 3e-4
"""An answer that came within this time is looked for without sleeping: to be woken takes as long as a short step."""

Space = Mapping[str, Any]
"""A space as plain data: its `kind` is the name of Gymnasium's class."""


class Channel:
    """Messages over two pipes.

    Args:
      reads: the descriptor of the pipe that messages are read from.
      writes: that of the pipe that they are written to.
      other: see `for_json`; by default, what is no plain data is refused with `TypeError`.
    """

    def __init__(self, reads: int, writes: int, other: Callable[[Any], Any] | None = None):
        self.reads = reads
        self.writes = writes
        self._other = other or refuse
        self._poll = select.poll()
        self._poll.register(reads, select.POLLIN)
        self._waited = 0.0

    def encoded(self, message: Any, payload: bytes = b"") -> bytes:
        """Returns a message of plain data, None for one without content, and bytes as `write` takes them."""
        if message is None:
            return _NOTHING
        text = dumped(message, self._other).encode()
        return _HEADER.pack(len(text), len(payload)) + text + payload

    def write(self, encoded: bytes) -> None:
        written = os.write(self.writes, encoded)
        while written < len(encoded):
            written += os.write(self.writes, memoryview(encoded)[written:])

    def send(self, message: Any = None) -> None:
        """Sends plain data, None for a message without content."""
        self.write(_NOTHING if message is None else self.encoded(message))

    def receive(self) -> tuple[Any, bytes]:
        """Returns a message and its bytes; raises `EOFError` if the other side has ended."""
        begun = time.perf_counter()
        latest = begun + (_SPIN_SECONDS if self._waited < _SPIN_SECONDS else 0.0)
        while time.perf_counter() < latest and not self._poll.poll(0):
            os.sched_yield()
        header = self._read(_HEADER.size)
        self._waited = time.perf_counter() - begun
        if header == _NOTHING:
            return None, b""
        text_size, payload_size = _HEADER.unpack(header)
        text = self._read(text_size)
        return loaded(text), (self._read(payload_size) if payload_size else b"")

    def poll(self, seconds: float) -> bool:
        """Waits for a message, or for the end of the other side; returns whether there is one."""
        return bool(self._poll.poll(seconds * 1000))

    def close(self) -> None:
        """Closes both pipes."""
        for descriptor in (self.reads, self.writes):
            os.close(descriptor)
        self.reads = self.writes = -1

    def _read(self, size: int) -> bytes:
        read = os.read(self.reads, size)
        if len(read) == size:
            return read
        parts = [read]
        while size > sum(map(len, parts)):
            if not parts[-1]:
                raise EOFError
            parts.append(os.read(self.reads, size - sum(map(len, parts))))
        return b"".join(parts)


class Exchange:
    """The arrays of a batch of environments in shared memory.

    Args:
      batch_size: the number of environments, B.
      observation: the space of observations.
      action: the space of actions.
    """

    def __init__(self, batch_size: int, observation: Space, action: Space):
        self._batch_size = batch_size
        self._spaces = observation, action
        self.size = 0
        self._map(None)

    def map(self, descriptor: int) -> None:
        """Maps the memory behind a descriptor, which has `size` bytes."""
        self._map(mmap.mmap(descriptor, max(self.size, 1)))

    def _map(self, memory: Any) -> None:
        observation, action = self._spaces
        self.size = 0

        def array(shape: Sequence[int], dtype: Any) -> Any:
            kind = np.dtype(dtype)
            whole = (self._batch_size, *shape)
            begin, count = self.size, int(np.prod(whole, dtype=np.int64))
            self.size += -(-count * kind.itemsize // _ALIGNMENT) * _ALIGNMENT
            return None if memory is None else np.frombuffer(memory, kind, count, begin).reshape(whole)

        self.actions = _nest(action, array)
        self.finals = _nest(observation, array)
        self.observations = [_nest(observation, array) for _ in range(SLOTS)]
        self.rewards = [array((), np.float64) for _ in range(SLOTS)]
        self.discounts = [array((), np.float64) for _ in range(SLOTS)]
        self.terminated = [array((), np.bool_) for _ in range(SLOTS)]
        self.truncated = [array((), np.bool_) for _ in range(SLOTS)]
        self.waits = array((), np.bool_)


def _nest(space: Space, array: Callable[[Sequence[int], Any], Any]) -> Any:
    if space["kind"] == "Dict":
        return {key: _nest(part, array) for key, part in space["parts"]}
    if space["kind"] == "Tuple":
        return tuple(_nest(part, array) for part in space["parts"])
    return array(space["shape"], space["dtype"]) if "shape" in space else None


def space_description(space: Any) -> dict[str, Any]:
    """Returns a space of Gymnasium or Gym, or a spec of `dm_env`, as plain data."""
    if isinstance(space, Mapping) and not hasattr(space, "contains"):
        return {"kind": "Dict", "parts": [[key, space_description(part)] for key, part in space.items()]}
    if isinstance(space, (list, tuple)):
        return {"kind": "Tuple", "parts": [space_description(part) for part in space]}
    names = [kind.__name__ for kind in type(space).__mro__]
    kind = next((name for name in names if name in _KINDS), names[0])
    if kind == "Dict":
        return {"kind": kind, "parts": [[key, space_description(part)] for key, part in space.spaces.items()]}
    if kind == "Tuple":
        return {"kind": kind, "parts": [space_description(part) for part in space.spaces]}
    if kind not in _KINDS:
        return {"kind": kind}
    array = {"kind": kind, "shape": list(space.shape or ()), "dtype": np.dtype(space.dtype).str}
    if kind == "Discrete":
        return {**array, "n": int(space.n), "start": int(getattr(space, "start", 0))}
    if kind == "DiscreteArray":
        return {**array, "kind": "Discrete", "n": int(space.num_values), "start": 0}
    if kind == "MultiDiscrete":
        return {**array, "n": _shortened(space.nvec), "start": _shortened(getattr(space, "start", 0))}
    if kind == "MultiBinary":
        return array
    low, high = (space.low, space.high) if kind == "Box" else (-np.inf, np.inf)
    if kind == "BoundedArray":
        low, high = space.minimum, space.maximum
    return {**array, "kind": "Box", "low": _shortened(low), "high": _shortened(high)}


_KINDS = ("Discrete", "MultiDiscrete", "MultiBinary", "Box", "Dict", "Tuple", "DiscreteArray", "BoundedArray", "Array")


def _shortened(bound: Any) -> Any:
    array = np.asarray(bound)
    if not array.size:
        return 0
    return array.flat[0].item() if (array == array.flat[0]).all() else array


def dumped(value: Any, other: Callable[[Any], Any]) -> str:
    """Returns a value as text, of which `loaded` makes an equal one; see `for_json`."""
    return json.dumps(for_json(value, other))


def loaded(text: str | bytes) -> Any:
    """Returns the value that `dumped` was given."""
    return restored(json.loads(text))


def refuse(value: Any) -> Any:
    """Raises `TypeError` for what is no plain data."""
    raise TypeError(f"{text_of(value)} is of type {type(value).__name__}")


def text_of(value: Any) -> str:
    """Returns the text of a value for messages."""
    try:
        return f"{value!r:.200}"
    except BaseException:
        return f"<{type(value).__name__}, which cannot be shown, since its __repr__ fails>"


def for_json(value: Any, other: Callable[[Any], Any], outer: tuple[int, ...] = ()) -> Any:
    """Returns a value for JSON, from which `restored` makes an equal one.

    Args:
      value: the value.
      other: returns what stands for a value of any other kind, or for one that contains itself.
      outer: ids of what contains the value.
    """
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, int):  # Python writes no larger ones.
        return value if -_LARGE < value < _LARGE else {"int": hex(value)}
    if isinstance(value, bytes):
        return {"bytes": _base64(value)}
    if isinstance(value, np.generic) and (value.dtype.kind in "biu" or value.dtype.char in "efd"):
        return value.item()
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in _RAW and not np.ma.isMaskedArray(value):
        tag = "array" if isinstance(value, np.ndarray) else "scalar"
        return {tag: [value.dtype.str, list(value.shape), _base64(value.tobytes())]}
    if id(value) in outer:
        return other(value)
    inner = (*outer, id(value))
    if isinstance(value, np.ndarray) and value.dtype.kind in "OT" and not np.ma.isMaskedArray(value):
        return {"objects": [list(value.shape), [for_json(one, other, inner) for one in value.ravel().tolist()]]}
    if isinstance(value, Mapping):
        pairs = value.items()
        return {"items": [[for_json(key, other, inner), for_json(one, other, inner)] for key, one in pairs]}
    if isinstance(value, list):
        return [for_json(one, other, inner) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [for_json(one, other, inner) for one in value]}
    return other(value)


_LARGE = 2**64
_RAW = "biufcSUMm"
"""Kinds of arrays whose bytes are all that they are."""


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def restored(value: Any) -> Any:
    """Returns the value that `for_json` was given."""
    if isinstance(value, list):
        return [restored(one) for one in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "items":
        return {restored(key): restored(one) for key, one in content}
    if tag == "tuple":
        return tuple(map(restored, content))
    if tag == "int":
        return int(content, 16)
    if tag == "bytes":
        return base64.b64decode(content)
    if tag == "objects":
        made = np.empty(content[0], object)
        for index, one in enumerate(content[1]):
            made.flat[index] = restored(one)
        return made
    array: Any = np.ndarray(content[1], content[0], bytearray(base64.b64decode(content[2])))
    return array[()] if tag == "scalar" else array
