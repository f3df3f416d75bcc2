"""Observations and actions in the requests and answers of the policy server.

A request is JSON.  An array in it is a list of lists, or `{"base64": TEXT}`: its bytes in order of rows, the numbers
little-endian.  Their dtype and shape are those of the space, or `{"base64": TEXT, "dtype": "float64", "shape": [4]}`.
With the content type `application/octet-stream`, the body is the length of the JSON (4 bytes, little-endian), the JSON,
and bytes, to which `{"raw": OFFSET}` in the JSON refers.
"""

import base64
import binascii
import json
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import tree

from ...action_masks import MASK, check_legal, forbidden_action
from ...data import Nest
from ...environments.batches.encoding import Leaf, encoding_of, split
from ...environments.batches.given_observations import read_observations
from ...environments.batches.observation_values import place_text
from ...environments.batches.spec_files import format_spec
from ...environments.external.given_actions import read_action
from ...errors import CallboardError
from ...specs import EnvironmentSpec

_LENGTH = struct.Struct("<I")
_BYTES_PER_NUMBER = 40
"""The most that a number takes in JSON, with a separator and some indentation."""
_FURTHER_BYTES = 2**16
_DTYPES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64".split()


def parse_body(body: bytes, is_binary: bool, example: str) -> tuple[dict[str, Any], memoryview]:
    """Returns the JSON object in the body of a request, and the bytes after it.

    Args:
      body: the body.
      is_binary: whether it begins with the length of the JSON.
      example: what the object may look like, for messages.

    Raises:
      CallboardError: the body is something else.
    """
    content = memoryview(body)
    rest = content[len(content) :]
    if is_binary:
        if len(content) < _LENGTH.size:
            raise CallboardError("the body is too short: begin it with the length of the JSON, 4 bytes little-endian")
        (length,) = _LENGTH.unpack_from(content)
        if length > len(content) - _LENGTH.size:
            raise CallboardError(f"the body has {len(content) - _LENGTH.size} bytes, fewer than its JSON of {length}")
        content, rest = content[_LENGTH.size : _LENGTH.size + length], content[_LENGTH.size + length :]
    try:
        parsed = json.loads(bytes(content), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CallboardError(f"the body is not JSON, or too deeply nested: send {example}") from error
    if not isinstance(parsed, dict):
        raise CallboardError(f"the body must be a JSON object such as {example}")
    return parsed, rest


def _refuse_constant(name: str) -> NoReturn:
    raise CallboardError(f"the body contains {name}: send finite numbers only")


class WireFormat:
    """Converts the values of an environment from and to JSON.

    Args:
      spec: the environment's spec.
    """

    def __init__(self, spec: EnvironmentSpec):
        self._spec = spec
        self._encoding = encoding_of(spec)
        self.spaces: dict[str, Any] = json.loads(format_spec(spec))
        """The spec as JSON, see `environments.spec_files`."""
        leaves = [leaf for part in self._encoding for leaf in tree.flatten(part)]
        numbers = sum(int(np.prod(leaf.shape)) for leaf in leaves)
        self.most_bytes = numbers * _BYTES_PER_NUMBER + _FURTHER_BYTES
        """The most bytes that the body of a request may have."""

    def observation(self, given: Any, rest: memoryview, last: bool = False) -> Nest:
        """Returns an observation from a request, as a nest of the agent's arrays `[1, ...]`.

        Args:
          given: the observation as the request has it.
          rest: the bytes after the request's JSON.
          last: whether the episode ends with it.

        Raises:
          CallboardError: it does not fit the environment's space, its mask has other values than 0 and 1, or it allows
            no action and is not the last one.
        """
        encoding = self._encoding.observation
        nest, _ = read_observations(encoding, _arrays(encoding, given, rest), batches=False)
        if not all(np.isfinite(leaf).all() for leaf in tree.flatten(nest) if leaf.dtype.kind == "f"):
            raise CallboardError("the observation is NaN or infinite: send finite numbers only")
        check_legal(self._spec, nest, last)
        return nest

    def action(self, given: Any, rest: memoryview, observation: Nest | None) -> Nest:
        """Returns an action from a request, likewise.

        Args:
          given: the action as the request has it.
          rest: the bytes after the request's JSON.
          observation: what `observation` has returned for the same timestep; None for the last one, after which the
            action is ignored.

        Raises:
          CallboardError: it does not fit the environment's space, or the observation's mask forbids it.
        """
        read = read_action(self._encoding.action, _arrays(self._encoding.action, given, rest))
        action = tree.map_structure(lambda leaf: leaf[np.newaxis], read)
        forbidden = None if observation is None else forbidden_action(self._spec, observation, action)
        if forbidden is not None:
            raise CallboardError(
                f"the action{place_text(forbidden.path)} is {forbidden.value}, which the '{MASK}' of the observation "
                "forbids: choose one that it allows"
            )
        return action

    def format_action(self, action: Nest) -> Any:
        """Returns an action, a nest of the agent's arrays `[1, ...]`, as JSON in the environment's own form."""
        return _plain(split(self._encoding.action, action, 1)[0])


def _arrays(encoding: Nest, given: Any, rest: memoryview, path: tuple[str, ...] = ()) -> Nest:
    """Replaces bytes by arrays, and the names of parts, which are text in JSON, by those of the environment."""
    if isinstance(encoding, Leaf):
        return _array(encoding, given, rest, path)
    if isinstance(encoding, dict):
        if not isinstance(given, Mapping):
            return given  # It is refused where it is read.
        names = {str(key): key for key in encoding}
        # Other parts are refused where it is read.
        return {
            names.get(name, name): _arrays(encoding[names[name]], part, rest, (*path, name)) if name in names else part
            for name, part in given.items()
        }
    if not isinstance(given, list) or len(given) != len(encoding):
        raise CallboardError(f"the value{place_text(path)} must be a list of its {len(encoding)} parts")
    pairs = enumerate(zip(encoding, given, strict=True))
    return tuple(_arrays(part, inner, rest, (*path, str(index))) for index, (part, inner) in pairs)


def _array(leaf: Leaf, given: Any, rest: memoryview, path: tuple[str, ...]) -> Any:
    if not isinstance(given, dict):
        return given
    place = place_text(path)
    dtype, shape = given.get("dtype", leaf.dtype.name), given.get("shape", list(leaf.shape))
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise CallboardError(f"the bytes{place} have an unknown dtype: choose from {', '.join(_DTYPES)}")
    if shape != list(leaf.shape):
        raise CallboardError(f"the bytes{place} have the shape {str(shape)[:99]}, not {list(leaf.shape)}")
    stored = np.dtype(np.uint8 if dtype == "bool" else dtype).newbyteorder("<")
    size = int(np.prod(leaf.shape)) * stored.itemsize
    kind = set(given) - {"dtype", "shape"}
    if kind == {"base64"} and isinstance(given["base64"], str):
        try:
            content: Any = base64.b64decode(given["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise CallboardError(f"the value{place} is not base64") from error
    elif kind == {"raw"} and type(given["raw"]) is int and given["raw"] >= 0:
        content = rest[given["raw"] : given["raw"] + size]
    else:
        raise CallboardError(f'the value{place} must be numbers, {{"base64": TEXT}} or {{"raw": OFFSET}}')
    if len(content) != size:
        raise CallboardError(f"the value{place} has {len(content)} bytes, and {dtype}{leaf.shape} has {size}")
    array = np.frombuffer(content, stored).reshape(leaf.shape)
    # Other bytes than 0 and 1 are no bools.
    return array != 0 if dtype == "bool" else array.astype(stored.newbyteorder("="), copy=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
