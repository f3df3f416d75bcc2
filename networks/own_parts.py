"""Parts of networks that functions and classes of users make, named `package.module:factory` in settings."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..data import copied
from ..errors import CallboardError
from ..runtime.tracing_lock import TRACING
from ..settings.named_objects import check_options, import_object

BUILT_WITH = 2
"""Batch with which networks are built; with one of 1 it would not be seen that a part drops or adds rows."""


def make_own_part(kind: str, path: str, options: Mapping[str, Any], *arguments: Any) -> Any:
    """Returns what a factory makes.

    Args:
      kind: `torso`, `core`, `head` or `critic_head`, for messages.
      path: the factory, `package.module:factory`.
      options: arguments of the factory by name.
      *arguments: its first arguments.

    Raises:
      CallboardError: as in `check_own_part`.
    """
    factory = check_own_part(kind, path, options, *arguments)
    with TRACING:
        return factory(*arguments, **copied(dict(options)))


def check_own_part(kind: str, path: str, options: Mapping[str, Any], *arguments: Any) -> Callable[..., Any]:
    """Imports a factory without calling it; arguments are those of `make_own_part`.

    Raises:
      CallboardError: the factory does not exist, or does not take its options.
    """
    factory = import_object(kind, path)
    if not callable(factory):
        raise CallboardError(f"{kind} {path!r} is not a function but of type {type(factory).__name__}")
    check_options(kind, path, factory, options)
    try:
        inspect.signature(factory).bind(*arguments, **options)
    except TypeError as error:
        raise CallboardError(f"{kind}_options do not fit {path}: {error}") from error
    except ValueError:  # A class without a signature.
        pass
    return factory
