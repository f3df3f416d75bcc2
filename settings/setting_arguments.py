"""Settings that Python code gives as arguments, as plain as in YAML: `Ppo(optimizer={"learning_rate": 1e-3})`."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from ..errors import unknown_setting
from .nested_settings import declared_fields
from .setting_types import changed_fields, field_types


def convert_arguments(settings: Any, key: str = "") -> None:
    """Converts what a dataclass was made with to the types of its fields, in place.

    Args:
      settings: a new instance of a dataclass, which may be frozen.
      key: what precedes the names of the fields in messages, such as `agent`.

    Raises:
      CallboardError: a name in a mapping is unknown, or a value does not match its field.
    """
    known = [f"{key}.{name}" if key else name for name in declared_fields(type(settings))]
    for name, value in changed_fields(settings, key, known).items():
        object.__setattr__(settings, name, value)


def check_argument_names(kind: type, given: Mapping[str, Any], others: Mapping[str, str] | None = None) -> None:
    """Rejects arguments that a dataclass does not have.

    Args:
      kind: the dataclass, or a class with a constructor of its own.
      given: the arguments by name.
      others: what could be meant besides, by flat name: settings of another class, and how they are written.

    Raises:
      CallboardError: names the first of them, and the closest one; or the dataclass is not written as settings must
        be.
    """
    if not dataclasses.is_dataclass(kind):
        return
    field_types(kind)
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
