"""Types of settings: numbers with a range, their description, and the one reader of plain values.

YAML, options, arguments in Python and policies give plain values, nested as they may be; `converted` makes of them what
the annotations of the dataclasses describe.
"""

import collections.abc
import contextlib
import copyreg
import dataclasses
import enum
import functools
import math
import numbers
import pathlib
import re
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from annotated_types import Interval

from ..errors import CallboardError, unknown_setting
from .named_objects import importable_name
from .setting_descriptions import described, is_union, shown
from .settings_classes import check_annotations

PositiveInt = Annotated[int, Interval(ge=1)]
LayerSize = Annotated[int, Interval(ge=1, le=2**16)]
"""Units of a layer: more would need more memory than a machine has."""
NonNegativeInt = Annotated[int, Interval(ge=0)]
PositiveFloat = Annotated[float, Interval(gt=0, lt=math.inf)]
NonNegativeFloat = Annotated[float, Interval(ge=0, lt=math.inf)]
FiniteFloat = Annotated[float, Interval(gt=-math.inf, lt=math.inf)]
UnitInterval = Annotated[float, Interval(ge=0, le=1)]
NAME = "name"
"""A group with a setting of this name may be given as that name alone: `optimizer: adam`."""
LIVE = "is_live_setting"
"""Attribute of what stands in the place of a number that may change, and that no type or range is checked of."""

# A class that is pickled by value, as those of the started program are, takes these marks along.  They are known by
# identity, here and in `dataclasses`, so a copy of one would be taken for a default.
copyreg.pickle(type(dataclasses.MISSING), lambda _: "MISSING")
copyreg.pickle(type(dataclasses.KW_ONLY), lambda _: "KW_ONLY")

_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*)")  # 010 is 8 to some, and 10 to others.
_MOST_DIGITS = 30


class Unfit(ValueError):
    """The value does not match the annotation."""


class _UnknownName(Exception):
    """A name is that of no field of a dataclass."""

    def __init__(self, key: str, name: object, kind: type):
        super().__init__(_inner(key, name))
        self.names = [_inner(key, known) for known in field_types(kind)]


def converted(key: str, value: Any, hint: Any, known: Collection[str] = ()) -> Any:
    """Converts the plain value of the setting `key` to the type of the annotation `hint`, and checks its range.

    Args:
      key: flat name of the setting, for messages, such as `agent.optimizer`.
      value: the value; of a dataclass a mapping by the names of its fields, or an instance.
      hint: the annotation.
      known: flat names of all settings, of which the closest is proposed for an unknown one.

    Raises:
      CallboardError: the value does not match, or a name in it is unknown.
    """
    with _explained(key, known):
        return _convert_part(value, hint, key, None)


def given_fields(kind: type, values: Any, key: str = "", known: Collection[str] = ()) -> dict[str, Any]:
    """Returns the fields of a dataclass that plain values set, converted, without making one; see `converted`."""
    if not isinstance(values, Mapping):
        raise _no_group(key, values, kind)
    with _explained(key, known):
        return _given_fields(kind, values, key, None)


def changed_fields(settings: Any, key: str = "", known: Collection[str] = ()) -> dict[str, Any]:
    """Returns the fields of a dataclass that are plain values, as Python may give them, converted; see `converted`."""
    with _explained(key, known):
        return _changed_fields(settings, key)


@contextlib.contextmanager
def _explained(key: str, known: Collection[str]) -> Iterator[None]:
    try:
        yield
    except _UnknownName as error:
        # For a nested value, such as a schedule, suggest only its own keys.
        in_group = not set(known).isdisjoint(error.names)
        otherwise = "see callboard train --help" if in_group else f"choose from {', '.join(error.names)}"
        names = {name: name for name in [*error.names, *(known if in_group else ())]}
        raise unknown_setting("key", str(error), str(error), names, otherwise) from error
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


def texts_of(setting: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the texts that a setting gives in a list or separated by commas, without the spaces around them."""
    texts = setting.split(",") if isinstance(setting, str) else setting
    return tuple(text.strip() for text in texts)


def field_types(settings: Any) -> Mapping[str, Any]:
    """Returns the annotations of the dataclass fields that can be set, by name.

    Raises:
      CallboardError: the author of the class has forgotten an annotation or the decorator.
    """
    return _field_types(settings)


@functools.cache
def _field_types(settings: Any) -> Mapping[str, Any]:
    check_annotations(settings)
    try:
        hints = typing.get_type_hints(settings, include_extras=True)
    except Exception:  # An annotation may use a name that is imported for type checkers only.
        hints = {}
    return {
        field.name: hints.get(field.name, Any if isinstance(field.type, str) else field.type)
        for field in dataclasses.fields(settings)
        if field.init
    }


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


def _convert_part(value: Any, hint: Any, key: str, default: Any) -> Any:
    """Converts a value that has a name of its own, by which the message for a wrong one calls it."""
    if getattr(value, LIVE, False) is True:
        return value
    # The annotations of a user's agent may use names that are imported for type checkers only.
    hint = type(default) if _is_made(default) and not (is_union(hint) or dataclasses.is_dataclass(hint)) else hint
    try:
        return _convert_dataclass(value, hint, key, default) if _is_group(hint) else _convert(value, hint, key)
    except Unfit as error:
        if _is_group(hint):
            raise _no_group(key, value, hint) from error
        raise CallboardError(f"{key} must be {described(hint)}, not {shown(value)}{_nameless(value, hint)}") from error


def _convert(value: Any, hint: Any, key: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        number = _convert(value, arguments[0], key)
        _require(all(_is_in(number, marker) for marker in arguments[1:]))
        return number
    if is_union(hint):
        return _convert_to_one_of(value, arguments, key)
    if origin is Literal:
        return _choice(value, arguments)
    if origin in (tuple, list, collections.abc.Sequence):
        return _convert_list(value, origin, arguments, key)
    if hint is dict or origin in (dict, collections.abc.Mapping):
        _require(isinstance(value, Mapping) and all(isinstance(name, str) for name in value))
        return {name: _convert(item, arguments[1] if arguments else Any, key) for name, item in value.items()}
    if _is_group(hint):
        return _convert_dataclass(value, hint, key, None)
    if isinstance(hint, type) and issubclass(hint, enum.Enum) and isinstance(value, str):
        _require(value in hint.__members__)
        return hint[value]
    return _convert_scalar(value, hint, origin)


def _convert_scalar(value: Any, hint: Any, origin: Any) -> Any:
    if hint is int:
        return _whole_number(value)
    if hint is float:
        return _number(value)
    if origin is collections.abc.Callable:
        _require(callable(value))
    elif hint is str and callable(value):
        # A run saves names, by which it finds classes and functions again.
        value = importable_name(value)
        _require(value is not None)
    elif hint in (str, pathlib.Path):
        _require(isinstance(value, str | hint) and "\0" not in str(value))
        return hint(value)
    elif isinstance(hint, type) and issubclass(hint, str):
        try:
            value = hint(value)
        except ValueError as error:
            raise Unfit from error
    elif hint in (bool, type(None)) or (isinstance(hint, type) and issubclass(hint, enum.Enum)):
        _require(isinstance(value, hint))
    # A user's agent may annotate a field with any type; the agent's own check then rejects wrong values.
    return value


def _nameless(value: Any, hint: Any) -> str:
    """Returns what to do about classes and functions that no name leads to, where a setting takes names."""
    values = value if isinstance(value, list | tuple) else (value,)
    if not any(map(callable, values)) or not _takes_text(hint):
        return ""
    return "; a run saves classes and functions by their names: define them at the top of a module"


def _takes_text(hint: Any) -> bool:
    return hint is str or any(map(_takes_text, typing.get_args(hint)))


def _whole_number(value: Any) -> int:
    if isinstance(value, str):
        _require(_INT.fullmatch(value) is not None and len(value) <= _MOST_DIGITS)
    elif isinstance(value, float):  # For example 1e6 for a million.
        _require(value.is_integer() and abs(value) < 2**53)
    else:
        _require(isinstance(value, numbers.Integral) and not isinstance(value, bool))
    return int(value)


def _number(value: Any) -> float:
    _require(isinstance(value, numbers.Real | str) and not isinstance(value, bool))
    # Python accepts the digits of all scripts.
    _require(not isinstance(value, str) or value.isascii())
    try:
        number = float(value)
    except (ValueError, OverflowError) as error:
        raise Unfit from error
    _require(not math.isnan(number))
    return number


def _choice(value: Any, choices: Sequence[Any]) -> Any:
    # YAML reads `no` and `on` as booleans where a word may be meant.
    found = [choice for choice in choices if type(choice) is type(value) and choice == value]
    if isinstance(value, str):
        found += [choice for choice in choices if isinstance(choice, str) and choice.lower() == value.lower()]
    _require(bool(found))
    return found[0]


def _convert_to_one_of(value: Any, hints: Sequence[Any], key: str) -> Any:
    # The value's own type is tried first: 1 stays an integer if floats are allowed too.
    exact = [hint for hint in hints if type(value) is (typing.get_args(hint)[0] if _has_range(hint) else hint)]
    exact += [hint for hint in hints if typing.get_origin(hint) is collections.abc.Callable and callable(value)]
    for hint in [*exact, *hints]:
        with contextlib.suppress(Unfit):
            return _convert(value, hint, key)
    raise Unfit


def _convert_list(value: Any, origin: Any, arguments: Sequence[Any], key: str) -> Any:
    _require(isinstance(value, list | tuple))
    if origin is tuple and arguments and Ellipsis not in arguments:
        _require(len(value) == len(arguments))
    else:
        arguments = [arguments[0] if arguments else Any] * len(value)
    items = [_convert(item, hint, key) for item, hint in zip(value, arguments, strict=True)]
    return items if origin is list else tuple(items)


def _require(fits: bool) -> None:
    if not fits:
        raise Unfit


def _convert_dataclass(value: Any, hint: Any, key: str, default: Any) -> Any:
    """Returns the dataclass that is given as itself, as a mapping, or as the name of what a group is of.

    Args:
      value: the value.
      hint: the dataclass.
      key: its flat name.
      default: the dataclass that has the values of the fields that are left out; anything else for those of the class.
    """
    if isinstance(value, hint):
        changed = _changed_fields(value, key)
        return dataclasses.replace(value, **changed) if changed else value
    kind = type(default) if _is_made(default) else hint
    if _is_made(default) and isinstance(value, str) and NAME in field_types(kind):
        value = {NAME: value}
    _require(isinstance(value, Mapping))
    given = _given_fields(kind, value, key, default)
    if not _is_made(default):
        for field in dataclasses.fields(kind):
            if field.init and field.name not in given and default_of(field) is dataclasses.MISSING:
                raise CallboardError(f"{_inner(key, field.name)} is missing from {shown(dict(value))}")
    made = dataclasses.replace(default, **given) if _is_made(default) else kind(**given)
    problem = getattr(made, "problem", "")
    if problem:
        raise CallboardError(f"{key}: {problem}" if key else problem)
    return made


def _given_fields(kind: Any, values: Mapping[Any, Any], key: str, before: Any) -> dict[str, Any]:
    hints, given = field_types(kind), {}
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name, value in values.items():
        if name not in hints:
            raise _UnknownName(key, name, kind)
        default = getattr(before, name) if _is_made(before) else default_of(fields[name])
        given[name] = _convert_part(value, hints[name], _inner(key, name), default)
    return given


def _changed_fields(settings: Any, key: str) -> dict[str, Any]:
    hints, changed = field_types(type(settings)), {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        # A default need not match its annotation.
        if field.name in hints and value is not field.default:
            after = _convert_part(value, hints[field.name], _inner(key, field.name), default_of(field))
            if after is not value:
                changed[field.name] = after
    return changed


def _no_group(key: str, value: Any, kind: type) -> CallboardError:
    example = _inner(key, next(iter(field_types(kind)), ""))
    return CallboardError(
        f"{key} is a group of settings, not {shown(value)}; set one of them by its name, such as {example}"
    )


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _is_made(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def default_of(field: Any) -> Any:
    """Returns the default of a dataclass's field, or `dataclasses.MISSING`."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _inner(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)
