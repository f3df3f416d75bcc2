"""Types of settings: numbers with a range, their description, and the conversion of plain values to them."""

import collections.abc
import dataclasses
import enum
import math
import numbers
import pathlib
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from annotated_types import Interval

from .errors import CallboardError, unknown

PositiveInt = Annotated[int, Interval(ge=1)]
LayerSize = Annotated[int, Interval(ge=1, le=2**16)]
"""Units of a layer: more would need more memory than a machine has."""
NonNegativeInt = Annotated[int, Interval(ge=0)]
PositiveFloat = Annotated[float, Interval(gt=0, lt=math.inf)]
NonNegativeFloat = Annotated[float, Interval(ge=0, lt=math.inf)]
FiniteFloat = Annotated[float, Interval(gt=-math.inf, lt=math.inf)]
UnitInterval = Annotated[float, Interval(ge=0, le=1)]

_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*)")  # 010 is 8 to some, and 10 to others.
_MOST_DIGITS = 30
_MOST_LETTERS = 60
_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    pathlib.Path: "a path",
    type(None): "null",
    Any: "any value",
}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}
_EXAMPLES = {int: "[64, 64]", float: "[0.5, 1.0]", str: "[a, b]"}


class Unfit(ValueError):
    """The value does not match the annotation."""


def converted(key: str, value: Any, hint: Any) -> Any:
    """Converts the plain value of the setting `key` to the type of the annotation `hint`, and checks its range.

    Raises:
      CallboardError: the value does not match.
    """
    try:
        return _convert(value, hint, key)
    except Unfit as error:
        raise CallboardError(f"{key} must be {described(hint)}, not {shown(value)}") from error
    except RecursionError as error:
        raise CallboardError(f"{key} is nested too deeply") from error


def check_ranges(settings: Any, prefix: str = "") -> None:
    """Checks the fields of a dataclass, and of the dataclasses in it, that are annotated with a range or with choices.

    Args:
      settings: an instance of a dataclass.
      prefix: what precedes the names of the fields in messages, such as `agent.`.

    Raises:
      CallboardError: a field is out of its range or none of the choices, and the message names the first such field; or
        the fields do not go together, as the `problem` of the dataclass says, if it has such a property.
    """
    for name, hint in field_types(type(settings)).items():
        value = getattr(settings, name)
        if dataclasses.is_dataclass(value):
            check_ranges(value, f"{prefix}{name}.")
        if _has_range(hint) or _has_choices(hint):
            converted(f"{prefix}{name}", value, hint)
    problem = getattr(settings, "problem", "")
    if problem:
        raise CallboardError(f"{prefix.removesuffix('.')}: {problem}" if prefix else problem)


def described(hint: Any) -> str:
    """Describes the values an annotation allows, for messages: `a whole number of at least 1 or null`."""
    if hint in _NAMES:
        return _NAMES[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        # The range of a dataclass is that of the numbers in it.
        ranges = () if dataclasses.is_dataclass(arguments[0]) else arguments[1:]
        return described(arguments[0]) + "".join(map(_range_text, ranges))
    if isinstance(getattr(hint, "description", None), str):
        return hint.description
    if origin is Literal:
        return _alternatives(arguments)
    if is_union(hint):
        # Classes and functions can be given in Python only.
        plain = [part for part in arguments if typing.get_origin(part) is not collections.abc.Callable]
        return _alternatives(list(dict.fromkeys(name for part in plain for name in _alternatives_of(part))))
    if origin in (tuple, list, collections.abc.Sequence):
        return _list_described(origin, arguments)
    if hint is dict or origin in (dict, collections.abc.Mapping) or dataclasses.is_dataclass(hint):
        return "settings by name, such as {size: 5}"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _alternatives(list(hint.__members__))
    return getattr(hint, "__name__", str(hint))


def shown(value: Any) -> str:
    """Formats a value for messages, on one line, shortened if needed."""
    text = value if isinstance(value, str) else repr(value)
    text = repr(text) if isinstance(value, str) else " ".join(text.split())
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


def field_types(settings: Any) -> dict[str, Any]:
    """Returns the annotations of the dataclass fields that can be set, by name."""
    try:
        hints = typing.get_type_hints(settings, include_extras=True)
    except Exception:  # An annotation may use a name that is imported for type checkers only.
        hints = {}
    return {
        field.name: hints.get(field.name, Any if isinstance(field.type, str) else field.type)
        for field in dataclasses.fields(settings)
        if field.init
    }


def is_union(hint: Any) -> bool:
    """Returns whether an annotation is a union, such as `int | None`."""
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _alternatives_of(hint: Any) -> list[str]:
    """Returns the names of the values that an annotation lists, or else its description."""
    if hint is bool:
        return ["true", "false"]
    return list(map(str, typing.get_args(hint))) if typing.get_origin(hint) is Literal else [described(hint)]


def _alternatives(values: Sequence[Any]) -> str:
    *others, last = map(str, values)
    return f"{', '.join(others)} or {last}" if others else last


def _list_described(origin: Any, arguments: Sequence[Any]) -> str:
    items = [part for part in arguments if part is not Ellipsis]
    if len(set(items)) != 1:
        return "a list"
    kind, *ranges = typing.get_args(items[0]) if typing.get_origin(items[0]) is Annotated else items
    if kind not in _PLURALS:
        return "a list"
    number = "" if origin is not tuple or Ellipsis in arguments else f"{len(items)} "
    return f"a list of {number}{_PLURALS[kind]}{''.join(map(_range_text, ranges))}, such as {_EXAMPLES[kind]}"


def _range_text(marker: Any) -> str:
    if not isinstance(marker, Interval):
        return ""
    above, low, high = _shown_bound(marker.gt), _shown_bound(marker.ge), _shown_bound(marker.le)
    if low and high:
        return f" from {low} to {high}"
    texts = [f"above {above}"] if above else [f"of at least {low}"] if low else []
    texts += [f"at most {high}"] if high else []
    return f" {' and '.join(texts)}" if texts else " that is finite"


def _shown_bound(bound: Any) -> str:
    return "" if bound is None or math.isinf(bound) else f"{bound:,}"


def _has_range(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        return any(isinstance(marker, Interval) for marker in typing.get_args(hint)[1:])
    return any(_has_range(part) for part in typing.get_args(hint))


def _has_choices(hint: Any) -> bool:
    return typing.get_origin(hint) is Literal or (is_union(hint) and any(map(_has_choices, typing.get_args(hint))))


def _is_in(value: Any, marker: Any) -> bool:
    if dataclasses.is_dataclass(value):
        return all(_is_in(number, marker) for number in getattr(value, "numbers", ()))
    # Written so that NaN is out of range.
    return not isinstance(marker, Interval) or (
        (marker.gt is None or value > marker.gt)
        and (marker.ge is None or value >= marker.ge)
        and (marker.lt is None or value < marker.lt)
        and (marker.le is None or value <= marker.le)
    )


def _convert(value: Any, hint: Any, key: str) -> Any:
    if hint is Any:
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        number = _convert(value, arguments[0], key)
        if all(_is_in(number, marker) for marker in arguments[1:]):
            return number
        raise Unfit
    if is_union(hint):
        return _convert_to_one_of(value, arguments, key)
    if origin is Literal:
        for choice in arguments:
            # YAML reads `no` and `on` as booleans where a word may be meant.
            if type(choice) is type(value) and choice == value:
                return choice
        for choice in arguments:
            if isinstance(choice, str) and isinstance(value, str) and choice.lower() == value.lower():
                return choice
        raise Unfit
    if origin in (tuple, list, collections.abc.Sequence):
        return _convert_list(value, origin, arguments, key)
    if hint is dict or origin in (dict, collections.abc.Mapping):
        return _convert_mapping(value, arguments, key)
    if dataclasses.is_dataclass(hint):
        return _convert_dataclass(value, hint, key)
    if origin is collections.abc.Callable:
        if callable(value):
            return value
        raise Unfit
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        members = dict(hint.__members__)
        if isinstance(value, str) and value in members:
            return members[value]
        raise Unfit
    return _convert_scalar(value, hint)


def _convert_scalar(value: Any, hint: Any) -> Any:
    if hint is int:
        return _whole_number(value)
    if hint is float:
        return _number(value)
    if hint in (bool, str, type(None)):
        if isinstance(value, hint) and not (isinstance(value, str) and "\0" in value):
            return value
        raise Unfit
    if hint is pathlib.Path:
        if isinstance(value, pathlib.Path) or (isinstance(value, str) and "\0" not in value):
            return pathlib.Path(value)
        raise Unfit
    # A user's agent may annotate a field with any type; the agent's own check then rejects wrong values.
    return value


def _whole_number(value: Any) -> int:
    if isinstance(value, str) and _INT.fullmatch(value) and len(value) <= _MOST_DIGITS:
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:  # For example 1e6 for a million.
        return int(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    raise Unfit


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, str)):
        raise Unfit
    if isinstance(value, str) and not value.isascii():  # Python accepts the digits of all scripts.
        raise Unfit
    try:
        number = float(value)
    except (ValueError, OverflowError) as error:
        raise Unfit from error
    if math.isnan(number):
        raise Unfit
    return number


def _convert_to_one_of(value: Any, hints: Sequence[Any], key: str) -> Any:
    # The value's own type is tried first: 1 stays an integer if floats are allowed too.
    exact = [hint for hint in hints if type(value) is (typing.get_args(hint)[0] if _has_range(hint) else hint)]
    for hint in [*exact, *hints]:
        try:
            return _convert(value, hint, key)
        except Unfit:
            continue
    raise Unfit


def _convert_list(value: Any, origin: Any, arguments: Sequence[Any], key: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise Unfit
    if origin is tuple and Ellipsis not in arguments and arguments:
        if len(value) != len(arguments):
            raise Unfit
        return tuple(_convert(item, hint, key) for item, hint in zip(value, arguments, strict=True))
    items = [_convert(item, arguments[0] if arguments else Any, key) for item in value]
    return items if origin is list else tuple(items)


def _convert_mapping(value: Any, arguments: Sequence[Any], key: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise Unfit
    hint = arguments[1] if len(arguments) > 1 else Any
    return {name: _convert(item, hint, key) for name, item in value.items()}


def _convert_dataclass(value: Any, hint: Any, key: str) -> Any:
    if isinstance(value, hint):
        return value
    if not isinstance(value, Mapping):
        raise Unfit
    hints = field_types(hint)
    for name in value:
        if name not in hints:
            raise unknown("key", f"{key}.{name}", [f"{key}.{known}" for known in hints])
    for field in dataclasses.fields(hint):
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and field.init and field.name not in value:
            raise CallboardError(f"{key}.{field.name} is missing from {shown(dict(value))}")
    made = hint(**{name: converted(f"{key}.{name}", item, hints[name]) for name, item in value.items()})
    problem = getattr(made, "problem", "")
    if problem:
        raise CallboardError(f"{key}: {problem}")
    return made
