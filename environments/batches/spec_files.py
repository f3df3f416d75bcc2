"""Environment specs as JSON, so that a policy can be used without its environment."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from dm_env import specs

from ...data import Nest
from ...files.guarded_files import parse_json
from ...specs import EnvironmentSpec, MultiDiscreteArray
from .encoding import EnvironmentEncoding, Leaf, encoding_of

_FORMAT = 1


def format_spec(environment: EnvironmentSpec) -> str:
    """Formats an environment's spec, with its encoding, as JSON.  Lists and named tuples in it become tuples."""
    encoding = encoding_of(environment)
    content = {"format": _FORMAT, "observation": _plain(encoding.observation), "action": _plain(encoding.action)}
    return json.dumps(content, indent=1)


def parse_spec(text: str) -> EnvironmentSpec:
    """Returns the spec that `format_spec` has formatted.

    Raises:
      ValueError: the text is something else.
    """
    content = parse_json(text)
    try:
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {_FORMAT}")
        return EnvironmentEncoding(_nest(content["observation"]), _nest(content["action"])).spec()
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not the spec of an environment: {error!r}") from error


def _plain(part: Nest) -> Any:
    if isinstance(part, dict):
        # Pairs, because keys may be numbers.
        return {"dict": [[key, _plain(inner)] for key, inner in part.items()]}
    if isinstance(part, tuple):
        return {"tuple": [_plain(inner) for inner in part]}
    return _plain_leaf(part)


def _nest(part: Mapping[str, Any]) -> Nest:
    if "dict" in part:
        return {key: _nest(inner) for key, inner in part["dict"]}
    if "tuple" in part:
        return tuple(_nest(inner) for inner in part["tuple"])
    return _leaf(part)


def _plain_leaf(leaf: Leaf) -> dict[str, Any]:
    spec = leaf.spec
    content: dict[str, Any] = {"shape": list(spec.shape), "dtype": spec.dtype.name}
    if isinstance(spec, specs.DiscreteArray | MultiDiscreteArray):
        content["num_values"] = np.asarray(spec.num_values).tolist()
    elif isinstance(spec, specs.BoundedArray):
        content |= {"minimum": plain_bound(spec.minimum), "maximum": plain_bound(spec.maximum)}
    if leaf.dtype != spec.dtype:
        content["environment_dtype"] = leaf.dtype.name
    if leaf.start is not None:
        content["start"] = np.asarray(leaf.start).tolist()
    if leaf.channels_first:
        content["channels_first"] = True
    return content


def _leaf(content: Mapping[str, Any]) -> Leaf:
    shape, dtype = tuple(content["shape"]), _dtype(content["dtype"])
    spec: specs.Array
    if "num_values" in content:
        kind: Any = MultiDiscreteArray if isinstance(content["num_values"], list) else specs.DiscreteArray
        spec = kind(content["num_values"], dtype=dtype)
    elif "minimum" in content:
        minimum, maximum = _array(content["minimum"], -np.inf, dtype), _array(content["maximum"], np.inf, dtype)
        spec = specs.BoundedArray(shape, dtype, minimum, maximum)
    else:
        spec = specs.Array(shape, dtype)
    own_dtype = _dtype(content.get("environment_dtype", dtype.name))
    start = content.get("start")
    if isinstance(start, list):
        start = np.array(start, np.int64)
    return Leaf(spec, own_dtype, start, content.get("channels_first", False))


def _dtype(name: Any) -> np.dtype:
    dtype = np.dtype(name)
    if dtype.kind not in "biuf":
        # One item of text, or of a structure, may be of any size.
        raise ValueError(f"the dtype {dtype.name} is none of numbers")
    return dtype


def plain_bound(bound: Any) -> Any:
    """Returns a bound as numbers, one number if they are all the same; None stands for infinity, unlike in JSON."""
    array = np.asarray(bound)
    if array.size and (array == array.flat[0]).all():
        array = array.reshape(-1)[0]
    return _finite(array.tolist())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and np.isinf(value) else value


def _array(bound: Any, infinity: float, dtype: np.dtype) -> np.ndarray:
    if isinstance(bound, list):
        return np.array([_array(item, infinity, dtype) for item in bound], dtype)
    return np.array(infinity if bound is None else bound, dtype)
