"""Converts values from YAML or an option to the annotated type of a setting's field, or rejects them."""

import collections.abc
import dataclasses
import enum
import math
import pathlib
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..errors import CallboardError
from .yaml_files import parse_yaml

_INT = re.compile(r"[-+]?[0-9][0-9_]*")
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
    """Converts the YAML value of the setting `key` to the type of the annotation `hint`.

    Raises:
      CallboardError: the value does not match.
    """
    return _or_refused(key, value, hint, lambda: _convert(value, hint, key))


def converted_text(key: str, text: str, hint: Any) -> Any:
    """Like `converted`, for the text of an option, which is parsed as YAML unless the setting is text."""
    return _or_refused(key, text, hint, lambda: _convert_text(text, hint, key))


def described(hint: Any) -> str:
    """Describes the values an annotation allows, for messages: `a whole number or null`."""
    if hint in _NAMES:
        return _NAMES[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(str(value) for value in arguments)
    if _is_union(origin):
        return " or ".join(dict.fromkeys(described(part) for part in arguments))
    if origin in (tuple, list, collections.abc.Sequence):
        items = [part for part in arguments if part is not Ellipsis]
        if len(set(items)) == 1 and items[0] in _PLURALS:
            number = "" if origin is not tuple or Ellipsis in arguments else f"{len(items)} "
            return f"a list of {number}{_PLURALS[items[0]]}, such as {_EXAMPLES[items[0]]}"
        return "a list"
    if hint is dict or origin in (dict, collections.abc.Mapping) or dataclasses.is_dataclass(hint):
        return "settings by name, such as {size: 5}"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return " or ".join(hint.__members__)
    return getattr(hint, "__name__", str(hint))


def shown(value: Any) -> str:
    """Formats a value for messages, on one line, shortened if needed."""
    text = value if isinstance(value, str) else repr(value)
    text = repr(text) if isinstance(value, str) else " ".join(text.split())
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


def field_types(settings: Any) -> dict[str, Any]:
    """Returns the annotations of the dataclass fields that can be set, by name."""
    try:
        hints = typing.get_type_hints(settings)
    except Exception:  # An annotation may use a name that is imported for type checkers only.
        hints = {}
    return {
        field.name: hints.get(field.name, Any if isinstance(field.type, str) else field.type)
        for field in dataclasses.fields(settings)
        if field.init
    }


def _or_refused(key: str, value: Any, hint: Any, convert: typing.Callable[[], Any]) -> Any:
    try:
        return convert()
    except Unfit as error:
        raise CallboardError(str(error) or f"{key} must be {described(hint)}, not {shown(value)}") from error
    except RecursionError as error:
        raise CallboardError(f"{key} is nested too deeply") from error


def _convert_text(text: str, hint: Any, key: str) -> Any:
    if hint is str or hint is pathlib.Path:
        return _convert(text, hint, key)
    try:
        value = parse_yaml(text)
    except ValueError:
        value = text
    if _is_union(typing.get_origin(hint)):
        parts = typing.get_args(hint)
        for part in parts:
            if part not in (str, pathlib.Path):
                try:
                    return _convert(value, part, key)
                except Unfit:
                    continue
        value = text if str in parts or pathlib.Path in parts else value
    return _convert(value, hint, key)


def _convert(value: Any, hint: Any, key: str) -> Any:
    if hint is Any:
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if _is_union(origin):
        return _convert_to_one_of(value, arguments, key)
    if origin is Literal:
        for choice in arguments:
            # YAML reads `no` and `on` as booleans where a word may be meant.
            if type(choice) is type(value) and choice == value:
                return choice
        raise Unfit
    if origin in (tuple, list, collections.abc.Sequence):
        return _convert_list(value, origin, arguments, key)
    if hint is dict or origin in (dict, collections.abc.Mapping):
        return _convert_mapping(value, arguments, key)
    if dataclasses.is_dataclass(hint):
        return _convert_dataclass(value, hint, key)
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
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise Unfit


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
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
    exact = [hint for hint in hints if isinstance(hint, type) and type(value) is hint]
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
    if dataclasses.is_dataclass(value):
        return value
    if not isinstance(value, Mapping):
        raise Unfit
    hints = field_types(hint)
    for name in value:
        if name not in hints:
            raise Unfit(f"unknown key {f'{key}.{name}'!r}: there are {', '.join(hints)}")
    return hint(**{name: converted(f"{key}.{name}", item, hints[name]) for name, item in value.items()})


def _is_union(origin: Any) -> bool:
    return origin is typing.Union or origin is types.UnionType
