"""Descriptions of settings and of their types, in the words of messages and of the help."""

import collections.abc
import dataclasses
import enum
import math
import pathlib
import types
import typing
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Interval

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


def is_union(hint: Any) -> bool:
    """Returns whether an annotation is a union, such as `int | None`."""
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def is_mapping(hint: Any) -> bool:
    """Returns whether a setting has entries, or may have some."""
    kinds = typing.get_args(hint) if is_union(hint) else (hint,)
    return any(kind is dict or typing.get_origin(kind) in (dict, collections.abc.Mapping) for kind in kinds)


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
    inner, example = typing.get_args(items[0]), ""
    if typing.get_origin(items[0]) in (tuple, list, collections.abc.Sequence):
        text, _, example = _list_described(typing.get_origin(items[0]), inner).partition(", such as ")
        plural, example = text.replace("a list", "lists", 1), f"[{example}]"
        if example == "[]":
            return "a list"
    else:
        kind, *ranges = inner if typing.get_origin(items[0]) is Annotated else items
        if dataclasses.is_dataclass(kind):
            return f"a list of settings by name, such as [{{{dataclasses.fields(kind)[0].name}: ...}}]"
        if kind not in _PLURALS:
            return "a list"
        plural, example = f"{_PLURALS[kind]}{''.join(map(_range_text, ranges))}", _EXAMPLES[kind]
    fixed = origin is tuple and Ellipsis not in arguments
    if fixed and example in _EXAMPLES.values() and len(items) != 2:
        example = f"[{', '.join([example[1:-1].split(', ')[0]] * len(items))}]"
    return f"a list of {len(items)} {plural}, such as {example}" if fixed else f"a list of {plural}, such as {example}"


def _range_text(marker: Any) -> str:
    if not isinstance(marker, Interval):
        return ""
    above, low, high, below = map(_shown_bound, (marker.gt, marker.ge, marker.le, marker.lt))
    if low and high:
        return f" from {low} to {high}"
    texts = [f"above {above}"] if above else [f"of at least {low}"] if low else []
    texts += [f"at most {high}"] if high else [f"below {below}"] if below else []
    return f" {' and '.join(texts)}" if texts else " that is finite"


def _shown_bound(bound: Any) -> str:
    return "" if bound is None or math.isinf(bound) else f"{bound:,}"
