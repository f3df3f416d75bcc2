"""Wrappers of Gymnasium environments by name, as settings (`--env-wrappers`)."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium

from ...data import copied
from ...errors import CallboardError, message_of, unknown
from ...settings.named_objects import import_object, importable_name
from ...settings.setting_types import shown, texts_of
from ..batches.fixed_sizes import FixedSizeObservations
from .old_gym import OldGym

_OWN = {kind.__name__: kind for kind in (FixedSizeObservations, OldGym)}
NAME = "name"
"""Key of the wrapper's name, where wrappers are written with arguments."""


class NamedWrapper(NamedTuple):
    """A wrapper and the arguments that it gets besides the environment."""

    name: str
    kind: type[gymnasium.Wrapper]
    arguments: dict[str, Any]

    @property
    def changes_rewards(self) -> bool:
        """Whether it changes rewards and nothing else."""
        return issubclass(self.kind, gymnasium.RewardWrapper | gymnasium.wrappers.NormalizeReward)


def wrapper_settings(wrappers: Any) -> list[str | dict[str, Any]]:
    """Returns the wrappers of a setting, one by one.

    Args:
      wrappers: names separated by commas, or a list of names and of mappings of the name and arguments; classes stand
        for their names, and a `functools.partial` for a mapping.

    Raises:
      CallboardError: they are anything else.
    """
    if isinstance(wrappers, str):
        return [*texts_of(wrappers)] if wrappers.strip() else []
    wrappers = named_wrappers(wrappers)
    if not isinstance(wrappers, list | tuple):
        raise _wrong(wrappers)
    settings: list[str | dict[str, Any]] = []
    for one in wrappers:
        if isinstance(one, str):
            settings += wrapper_settings(one)
        elif isinstance(one, Mapping) and isinstance(one.get(NAME), str):
            settings.append(dict(one))
        else:
            raise _wrong(one)
    return settings


def named_wrappers(wrappers: Any) -> Any:
    """Returns a setting of wrappers with names in place of classes.

    Raises:
      CallboardError: a class cannot be imported by its name, or a `functools.partial` has arguments without names.
    """
    if callable(wrappers):
        wrappers = [wrappers]
    return tuple(map(_named, wrappers)) if isinstance(wrappers, list | tuple) else wrappers


def read_wrappers(wrappers: Any) -> tuple[NamedWrapper, ...]:
    """Finds the wrappers of a setting, the innermost first.

    Args:
      wrappers: see `wrapper_settings`.  A name is that of a class of `gymnasium.wrappers`, `FixedSizeObservations`,
        `OldGym`, or `package.module:Class`.

    Raises:
      CallboardError: a name is unknown, or a wrapper does not take its arguments or needs others.
    """
    found = []
    for one in wrapper_settings(wrappers):
        name = one if isinstance(one, str) else one[NAME]
        arguments = {} if isinstance(one, str) else {str(key): value for key, value in one.items() if key != NAME}
        kind = _find(name)
        try:
            taken = inspect.signature(kind)
            if NAME in taken.parameters and taken.parameters[NAME].default is inspect.Parameter.empty:
                raise CallboardError(
                    f"env_wrappers: {name!r} needs the argument {NAME!r}, which in env_wrappers is the name of its "
                    "class: rename it, or give it a default"
                )
            taken.bind(None, **arguments)
        except TypeError as error:
            raise CallboardError(
                f"env_wrappers: {name!r}: {error}; write [{{name: {name}, argument: value}}] to give arguments"
            ) from error
        found.append(NamedWrapper(name, kind, arguments))
    return tuple(found)


def wrapped(environment: gymnasium.Env, wrappers: Sequence[NamedWrapper]) -> gymnasium.Env:
    """Wraps an environment; the first wrapper becomes the innermost.

    Raises:
      CallboardError: a wrapper rejects the environment or its arguments.
    """
    for wrapper in wrappers:
        try:
            environment = wrapper.kind(environment, **copied(wrapper.arguments))
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError, gymnasium.error.Error) as error:
            reason = " ".join(message_of(error).split()) or type(error).__name__
            raise CallboardError(f"env_wrappers: {wrapper.name!r} cannot wrap the environment: {reason}") from error
    return environment


def without_rewards(wrappers: Any) -> list[str | dict[str, Any]]:
    """Returns a setting of wrappers without those that change rewards, for true scores in evaluations."""
    settings = wrapper_settings(wrappers)
    return [one for one, found in zip(settings, read_wrappers(settings), strict=True) if not found.changes_rewards]


def _find(name: str) -> type[gymnasium.Wrapper]:
    if ":" in name:
        found = import_object("wrapper", name)
    else:
        if name in _OWN:
            return _OWN[name]
        known = [known for known in gymnasium.wrappers.__all__ if known != "vector"]
        if name not in known:
            raise unknown("wrapper", name, [*known, *_OWN])
        try:
            found = getattr(gymnasium.wrappers, name)
        except ImportError as error:
            reason = " ".join(message_of(error).split())
            raise CallboardError(f"env_wrappers: {name!r} cannot be imported: {reason}") from error
    if not (isinstance(found, type) and issubclass(found, gymnasium.Wrapper)):
        raise CallboardError(f"env_wrappers: {name!r} is not a subclass of gymnasium.Wrapper")
    return found


def _named(wrapper: Any) -> Any:
    if isinstance(wrapper, Mapping) and callable(wrapper.get(NAME)):
        return {**wrapper, NAME: _named(wrapper[NAME])}
    if isinstance(wrapper, functools.partial):
        if wrapper.args or NAME in wrapper.keywords:
            raise CallboardError(
                f"env_wrappers: a partial must give its arguments by name, and none called {NAME!r}, the name of "
                "the class: give others, or derive a class that needs none"
            )
        return {NAME: _named(wrapper.func), **wrapper.keywords}
    if not callable(wrapper):
        return wrapper
    name = importable_name(wrapper)
    if name is None:
        raise CallboardError(
            f"env_wrappers: {shown(wrapper)} has no name by which a run can import it: define a class at the top of a "
            "module"
        )
    return name


def _wrong(what: Any) -> CallboardError:
    return CallboardError(
        "env_wrappers must be names of gymnasium.wrappers or package.module:Class, or a list of these and of mappings "
        f"{{name: NAME, argument: value}}, not {what!r}"
    )
