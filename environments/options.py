"""Validation of environment options against a dataclass."""

import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from ..errors import CallboardError
from .user_errors import unknown_option

Settings = TypeVar("Settings")

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", type(None): "left out"}


def read_options(name: str, options: Mapping[str, Any], settings: type[Settings]) -> Settings:
    """Converts a user's options to an instance of the dataclass `settings`.

    Args:
      name: name of the environment, for messages.
      options: the user's options by name.
      settings: a dataclass whose fields are bool, int, float, str, `Literal`, or a union of these.  Its
        `__post_init__` raises `ValueError` for values out of range.

    Raises:
      CallboardError: if an option is unknown, of the wrong type, or out of range.
    """
    hints = typing.get_type_hints(settings)
    for key, value in options.items():
        if key not in hints:
            raise unknown_option(name, str(key), hints)
        if not _fits(value, hints[key]):
            raise CallboardError(f"environment {name!r}: {key!r} is {value!r}, it must be {_kind(hints[key])}")
    try:
        return settings(**options)
    except ValueError as error:
        raise CallboardError(f"environment {name!r}: {error}") from error


def check_range(settings: Any, option: str, minimum: float, maximum: float | None = None) -> None:
    """Raises `ValueError` unless the field `option` of the dataclass `settings` is None or in the range."""
    value = getattr(settings, option)
    # Written so that NaN is out of range.
    if value is not None and not (minimum <= value and (maximum is None or value <= maximum)):
        limits = f"from {minimum} to {maximum}" if maximum is not None else f"{minimum} or more"
        raise ValueError(f"{option!r} is {value}, it must be {limits}")


def _fits(value: Any, hint: Any) -> bool:
    if _is_union(hint):
        return any(_fits(value, part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float) if hint is float else isinstance(value, hint)


def _kind(hint: Any) -> str:
    if _is_union(hint):
        return " or ".join(_kind(part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return " or ".join(repr(value) for value in typing.get_args(hint))
    return _KINDS[hint]


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (types.UnionType, typing.Union)
