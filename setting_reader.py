"""The reader of settings that are given as plain values: in YAML, by options, and as arguments in Python.

Settings have flat names, such as `agent.optimizer.learning_rate`, and may be nested as dataclasses or mappings.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from .errors import CallboardError, unknown_setting
from .nested_settings import Field, declared_fields, from_values, with_values
from .setting_types import converted, field_types, is_union, shown

_NAME = "name"
"""A group with a setting of this name may be given as that name alone: `optimizer: adam`."""


def flat_values(values: Mapping[str, Any], fields: Mapping[str, Field], prefix: str = "") -> dict[str, Any]:
    """Converts values from YAML, nested as they may be, to values by flat name.

    Args:
      values: values by name.
      fields: all settings by flat name.
      prefix: prefix of the names in `values`, such as `agent.`.

    Raises:
      CallboardError: a name is unknown, or a value does not match its setting.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if key in fields:
            flat[key] = converted(key, value, fields[key].hint)
        elif group_of(key, fields):
            flat |= flat_values(settings_of_group(key, value, fields), fields, f"{key}.")
        else:
            raise unknown_setting("key", key if prefix else name, key, {known: known for known in fields})
    return flat


def nested_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings by flat name as nested mappings, the inverse of `flat_values`."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        within = nested
        *groups, name = key.split(".")
        for group in groups:
            within = within.setdefault(group, {})
        within[name] = value
    return nested


def group_of(key: str, fields: Mapping[str, Field]) -> list[str]:
    """Returns the settings in a group such as `agent.optimizer`."""
    return [name for name in fields if name.startswith(f"{key}.")]


def settings_of_group(key: str, value: Any, fields: Mapping[str, Field]) -> Mapping[str, Any]:
    """Returns the settings of a group that are given as a mapping, or as the name of what the group is of."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str) and f"{key}.{_NAME}" in fields:
        return {_NAME: value}
    first = group_of(key, fields)[0]
    raise CallboardError(
        f"{key} is a group of settings, not {shown(value)}; set one of them by its name, such as {first}"
    )


def convert_arguments(settings: Any, prefix: str = "") -> None:
    """Converts what a dataclass was made with to the types of its fields, in place.

    Args:
      settings: a new instance of a dataclass, which may be frozen.
      prefix: what precedes the names of the fields in messages, such as `agent.`.

    Raises:
      CallboardError: a name in a mapping is unknown, or a value does not match its field.
    """
    for name, value in _converted_fields(settings, prefix).items():
        object.__setattr__(settings, name, value)


def _converted_fields(settings: Any, prefix: str) -> dict[str, Any]:
    """Returns the fields that are not what they are after conversion."""
    hints = field_types(type(settings))
    changed = {}
    for field in dataclasses.fields(settings):
        if field.name not in hints:
            continue
        value, hint, key = getattr(settings, field.name), hints[field.name], f"{prefix}{field.name}"
        if value is field.default:
            continue
        made = _converted_group(value, field, hint, key) if _is_group(field, hint) else converted(key, value, hint)
        if made is not value:
            changed[field.name] = made
    return changed


def _is_group(field: Any, hint: Any) -> bool:
    nested = field.default if dataclasses.is_dataclass(field.default) else hint
    return not is_union(hint) and dataclasses.is_dataclass(nested)


def _converted_group(value: Any, field: Any, hint: Any, key: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = _converted_fields(value, f"{key}.")
        return dataclasses.replace(value, **changed) if changed else value
    default = field.default if dataclasses.is_dataclass(field.default) else None
    fields = {f"{key}.{name}": one for name, one in declared_fields(default or hint).items()}
    flat = flat_values(settings_of_group(key, value, fields), fields, f"{key}.")
    values = {name.removeprefix(f"{key}."): one for name, one in flat.items()}
    return from_values(hint, values) if default is None else with_values(default, values)


def check_argument_names(kind: type, given: Mapping[str, Any], others: Mapping[str, str] | None = None) -> None:
    """Rejects arguments that a dataclass does not have.

    Args:
      kind: the dataclass, or a class with a constructor of its own.
      given: the arguments by name.
      others: what could be meant besides, by flat name: settings of another class, and how they are written.

    Raises:
      CallboardError: names the first of them, and the closest one.
    """
    if not dataclasses.is_dataclass(kind):
        return
    names = {field.name for field in dataclasses.fields(kind) if field.init}
    unknown = [name for name in given if name not in names]
    if not unknown:
        return
    parameters = inspect.signature(kind.__init__).parameters
    if unknown[0] in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return
    known = {**{name: argument_text(name) for name in declared_fields(kind)}, **(others or {})}
    raise unknown_setting("argument", unknown[0], unknown[0], known, f"help({kind.__name__}) lists all")


def argument_text(name: str) -> str:
    """Returns how a setting is given in Python, such as `optimizer={"learning_rate": ...}`."""
    first, *inner = name.split(".")
    text = "..."
    for one in reversed(inner):
        text = f'{{"{one}": {text}}}'
    return f"{first}={text}" if inner else first
