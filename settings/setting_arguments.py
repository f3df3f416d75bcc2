"""Settings that Python code gives as arguments, as plain as in YAML: `Ppo(optimizer={"learning_rate": 1e-3})`."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from ..errors import CallboardError, similar_setting, unknown_setting
from .nested_settings import declared_fields
from .setting_types import changed_fields, field_types

F = TypeVar("F", bound=Callable[..., Any])


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


def checked_names(called: F) -> F:
    """Lets a function, or the public methods of a class, refuse arguments that they do not take; a decorator.

    Raises, when it is called:
      CallboardError: names the first such argument, and the closest one.
    """
    if isinstance(called, type):
        for name, method in list(vars(called).items()):
            if inspect.isfunction(method) and (name in ("__init__", "__call__") or not name.startswith("_")):
                setattr(called, name, checked_names(method))
        return cast(F, called)
    parameters = inspect.signature(called).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return called  # It knows itself which others it takes.
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    names = [name for name in names if name != "self"]

    @functools.wraps(called)
    def checked(*arguments: Any, **named: Any) -> Any:
        for name in named:
            if name not in names:
                raise _unknown_argument(called.__qualname__.removesuffix(".__init__"), name, names)
        return called(*arguments, **named)

    return cast(F, checked)


def _unknown_argument(function: str, given: str, names: list[str]) -> CallboardError:
    # Other libraries' names are explained by those of settings and options.
    known = {form: name for name in names for form in (f"max_{name}", f"--{name}", name)}
    hint = similar_setting(given, known) or f"it takes {', '.join(names) or 'none'}"
    return CallboardError(f"unknown argument {given!r} of {function.removesuffix('.__call__')}; {hint}")


def argument_text(name: str) -> str:
    """Returns how a setting is given in Python, such as `optimizer={"learning_rate": ...}`."""
    first, *inner = name.split(".")
    text = "..."
    for one in reversed(inner):
        text = f'{{"{one}": {text}}}'
    return f"{first}={text}" if inner else first
