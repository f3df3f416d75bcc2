"""Dataclasses of settings that contain others, such as the `optimizer` of an agent."""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from .setting_types import field_types, is_union

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
    """
    kind = settings if isinstance(settings, type) else type(settings)
    texts = _attribute_texts(kind)
    hints = field_types(kind)
    found: dict[str, Field] = {}
    for field in dataclasses.fields(kind):
        if field.name not in hints:
            continue
        default = _default(field) if settings is kind else getattr(settings, field.name)
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


def from_values(kind: type[T], values: Mapping[str, Any]) -> T:
    """Makes a dataclass from values by names such as `optimizer.learning_rate`; the other fields keep their defaults.

    Args:
      kind: the dataclass.
      values: for example `{"epochs": 3, "optimizer.learning_rate": 1e-3}`.
    """
    defaults = {field.name: _default(field) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
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


def _default(field: Any) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _attribute_texts(kind: type) -> dict[str, str]:
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
