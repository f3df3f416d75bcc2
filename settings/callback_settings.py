"""The setting `callbacks`: classes by name, with or without arguments, and objects."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from ..callbacks import NAME, Callbacks
from ..errors import CallboardError, anything_raised, one_line, unknown
from .named_objects import import_object, importable_name
from .setting_types import texts_of
from .settings_classes import check_annotations

_CALLED = "on_"
"""Beginning of the names of the methods that a run calls."""


def callback_settings(callbacks: Any) -> list[str | dict[str, Any] | Callbacks]:
    """Returns the callbacks of a run, one by one.

    Args:
      callbacks: names separated by commas, one `Callbacks` object or class, one mapping of the name and arguments, or a
        list of names, objects, classes and mappings.

    Raises:
      CallboardError: they are anything else.
    """
    if isinstance(callbacks, str):
        return [*texts_of(callbacks)]
    if isinstance(callbacks, Callbacks | Mapping | type):
        callbacks = [callbacks]
    if not isinstance(callbacks, list | tuple):
        raise _wrong(callbacks)
    callbacks = [_made(one) if isinstance(one, type) else _named(one) for one in callbacks]
    for one in callbacks:
        if not isinstance(one, str | Callbacks) and not (isinstance(one, Mapping) and isinstance(one.get(NAME), str)):
            raise _wrong(one)
    return [
        part for one in callbacks for part in (callback_settings(one) if isinstance(one, str) and "," in one else [one])
    ]


def check_callbacks(callbacks: Any) -> list[type[Callbacks]]:
    """Checks the callbacks of a run without making an instance, and returns their classes.

    Args:
      callbacks: see `callback_settings`.

    Raises:
      CallboardError: a name or an argument is wrong, or an object could not be made again for a resumed run.
    """
    classes = []
    for one in callback_settings(callbacks):
        setting = one.setting() if isinstance(one, Callbacks) else one
        name = setting if isinstance(setting, str) else setting[NAME]
        if isinstance(one, Callbacks):
            classes.append(_with_known_methods(_class_of(one, name)))
            continue
        kind = _class_by_name(name)
        arguments = {} if isinstance(setting, str) else {key: setting[key] for key in setting if key != NAME}
        try:
            inspect.signature(kind).bind(**arguments)
        except TypeError as error:
            raise CallboardError(
                f"callbacks {name!r}: {error}; write {{name: {name}, argument: value}} in YAML, or pass an object to "
                "Experiment(callbacks=...)"
            ) from error
        classes.append(_with_known_methods(kind))
    return classes


def make_callbacks(callbacks: Any) -> list[Callbacks]:
    """Returns an instance of every callback of a run, objects as they are."""
    made = []
    for one in callback_settings(callbacks):
        if isinstance(one, Callbacks):
            made.append(one)
        elif isinstance(one, str):
            made.append(_new(_class_by_name(one), {}))
        else:
            made.append(_new(_class_by_name(one[NAME]), {key: value for key, value in one.items() if key != NAME}))
    return made


def overridden(kind: type[Callbacks], *methods: str) -> bool:
    """Returns whether a class of callbacks overrides one of these methods."""
    return any(getattr(kind, method) is not getattr(Callbacks, method) for method in methods)


def _made(kind: type) -> Callbacks:
    """Returns an instance of a class of callbacks without arguments."""
    if not issubclass(kind, Callbacks):
        raise _wrong(kind)
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise CallboardError(f"callbacks {kind.__name__} need arguments: pass an object ({error})") from error
    return _new(kind, {})


def _named(callback: Any) -> Any:
    """Returns a mapping of a class and its arguments with the class's name in its place, and anything else as it is."""
    is_class = isinstance(callback, Mapping) and isinstance(callback.get(NAME), type)
    return {**callback, NAME: importable_name(callback[NAME])} if is_class else callback


def _new(kind: type[Callbacks], arguments: Mapping[str, Any]) -> Callbacks:
    """Returns a new object of a user's class, whose constructor may raise anything."""
    try:
        return kind(**arguments)
    except CallboardError:
        raise
    except anything_raised() as error:
        raise CallboardError(f"the constructor of the callback {kind.__qualname__} raised {one_line(error)}") from error


def _with_known_methods(kind: type[Callbacks]) -> type[Callbacks]:
    """Returns a class; raises `CallboardError` for a method that would never be called, or a field that is ignored."""
    if dataclasses.is_dataclass(kind):
        check_annotations(kind)
    known = [name for name in vars(Callbacks) if name.startswith(_CALLED)]
    for name in dir(kind):
        if name.startswith(_CALLED) and name not in known and callable(getattr(kind, name)):
            raise unknown(f"callback of {kind.__name__}", name, known)
    return kind


def _class_by_name(name: str) -> type[Callbacks]:
    if ":" not in name:
        raise CallboardError(f"callbacks {name!r}: name a class, as package.module:Class")
    found = import_object("callbacks", name)
    if not (isinstance(found, type) and issubclass(found, Callbacks)):
        raise CallboardError(f"callbacks {name!r} is not a subclass of callboard.callbacks.Callbacks")
    return found


def _class_of(callbacks: Callbacks, name: str) -> type[Callbacks]:
    """Returns the class of an object; raises `CallboardError` if it cannot be imported by its name."""
    kind = type(callbacks)
    # The main module has another name in other processes, which receive a copy of the object instead.
    if not name.startswith("__main__:"):
        try:
            if _class_by_name(name) is kind:
                return kind
        except CallboardError:
            pass
        raise CallboardError(
            f"the callbacks {name!r} cannot be imported by that name; define the class at a module's top"
        )
    return kind


def _wrong(what: Any) -> CallboardError:
    return CallboardError(
        f"callbacks must be package.module:Class, an object of a subclass of callboard.callbacks.Callbacks, or a list "
        f"of these, not {what!r}"
    )
