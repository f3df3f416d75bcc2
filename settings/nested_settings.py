"""Dataclasses of settings that contain others, such as the `optimizer` of an agent."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from .setting_descriptions import is_mapping, is_union
from .setting_types import NAME, default_of, field_types
from .settings_classes import check_only_fields

T = TypeVar("T")


class Field(NamedTuple):
    """A field that is not a dataclass of settings itself."""

    hint: Any
    """Its annotation."""
    default: Any
    """Its default, or `dataclasses.MISSING`."""
    text: str
    """Its description in the `Attributes` section of the docstring, or ""."""


def declared_fields(settings: Any) -> dict[str, Field]:
    """Returns all fields of a dataclass and of the dataclasses in it, by names such as `optimizer.learning_rate`.

    The class of a nested dataclass is that of its default, or its annotation if it has none.

    Args:
      settings: a dataclass, or an instance, whose values are then the defaults.

    Raises:
      CallboardError: the class, or one of those in it, is not written as settings must be.
    """
    kind = settings if isinstance(settings, type) else type(settings)
    check_only_fields(kind)
    texts = _attribute_texts(kind)
    hints = field_types(kind)
    found: dict[str, Field] = {}
    for field in dataclasses.fields(kind):
        if field.name not in hints:
            continue
        default = default_of(field) if settings is kind else getattr(settings, field.name)
        nested = default if dataclasses.is_dataclass(default) else hints[field.name]
        # A dataclass in place of a number, such as a schedule, is a value of its own.
        if not is_union(hints[field.name]) and dataclasses.is_dataclass(nested):
            found |= {f"{field.name}.{name}": inner for name, inner in declared_fields(nested).items()}
        else:
            found[field.name] = Field(hints[field.name], default, texts.get(field.name, ""))
    return found


def values_of(settings: Any) -> dict[str, Any]:
    """Returns the values of a dataclass and of the dataclasses in it, by names such as `optimizer.learning_rate`."""
    return {name: field.default for name, field in declared_fields(settings).items()}


def nested_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values by names such as `optimizer.learning_rate` as nested mappings."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        within = nested
        *groups, name = key.split(".")
        for group in groups:
            within = within.setdefault(group, {})
        within[name] = value
    return nested


def merged_values(
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    fields: Mapping[str, Field],
    prefix: str = "",
    entries: bool = True,
) -> dict[str, Any]:
    """Returns nested values updated with others; those of a group, which a name alone stands for too, are merged.

    Args:
      values: nested values, as YAML has them.
      given: those that take their place.
      fields: all settings by flat name.
      prefix: flat name of the group of the values, with a dot.
      entries: whether settings that are mappings themselves are merged too, such as `env_options`.
    """
    merged = dict(values)
    for name, after in given.items():
        key = f"{prefix}{name}."
        before = merged.get(name)
        if f"{key}{NAME}" in fields:
            before, after = ({NAME: one} if isinstance(one, str) else one for one in (before, after))
        field = fields.get(key.removesuffix("."))
        is_merged = any(one.startswith(key) for one in fields) or (entries and (not field or is_mapping(field.hint)))
        if is_merged and isinstance(before, Mapping) and isinstance(after, Mapping):
            after = merged_values(before, after, fields, key, entries)
        merged[name] = after
    return merged


def from_values(kind: type[T], values: Mapping[str, Any]) -> T:
    """Makes a dataclass from values by names such as `optimizer.learning_rate`; the other fields keep their defaults.

    Args:
      kind: the dataclass.
      values: for example `{"epochs": 3, "optimizer.learning_rate": 1e-3}`.
    """
    defaults = {field.name: default_of(field) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**_arguments(values, defaults, field_types(kind)))


def with_values(settings: T, values: Mapping[str, Any]) -> T:
    """Returns a dataclass with other values of some fields, by names such as `optimizer.learning_rate`."""
    before = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    return dataclasses.replace(settings, **_arguments(values, before, {}))  # type: ignore[type-var]


def _arguments(values: Mapping[str, Any], before: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        name, _, rest = key.partition(".")
        if rest:
            nested.setdefault(name, {})[rest] = value
        else:
            arguments[name] = value
    for name, inner in nested.items():
        whole = arguments.get(name, before.get(name))
        arguments[name] = (
            with_values(whole, inner) if dataclasses.is_dataclass(whole) else from_values(hints[name], inner)
        )
    return arguments


@functools.cache
def _attribute_texts(kind: type) -> Mapping[str, str]:
    """Returns the descriptions in the `Attributes` sections of a class and its bases, by name."""
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        _, _, section = inspect.cleandoc(owner.__doc__ or "").partition("Attributes:\n")
        name = ""
        for line in section.splitlines():
            if line and not line.startswith(" "):
                break
            found = re.match(r" {2,4}(\w+): (.*)", line)
            if found:
                name = found[1]
                texts[name] = found[2]
            elif name:
                texts[name] += f" {line.strip()}"
    return texts
