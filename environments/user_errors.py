"""What users get wrong when they name an environment and its options, said in one line."""

import contextlib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import gymnasium

from ..data import CallboardError


def keywords(creator: Callable[..., Any]) -> tuple[list[str], bool]:
    """The names of the keyword arguments that `creator` takes, and whether it takes any others besides."""
    try:
        parameters = inspect.signature(creator).parameters.values()
    except ValueError:  # Some callables that are written in C do not tell.
        return [], True
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [parameter.name for parameter in parameters if parameter.kind in named]
    return names, any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def import_module(name: str, module: str) -> ModuleType:
    """Imports the `module` of the environment `name`.

    Raises:
        CallboardError: there is no such module, or one that it imports is missing.  Other errors of the module are its
            author's to see, with their traceback.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            reason = f"there is no module {error.name!r} on the Python path"
            raise CallboardError(f"unknown environment {name!r}: {reason}") from error
        raise CallboardError(f"environment {name!r}: the import of {module!r} fails: {error}") from error


@contextlib.contextmanager
def user_errors(name: str, options: Mapping[str, Any], taken: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Turns what Python and Gymnasium raise for a user's mistake into a `CallboardError`.

    Args:
        name: the environment that is being made.
        options: those that the user gave.
        taken: tells which options the environment takes, where one of them was refused.

    Raises:
        CallboardError: an unknown option, or a package that is missing.
    """
    try:
        yield
    except TypeError as error:
        found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if found is None or found[1] not in options:
            raise
        listed = ", ".join(sorted(set(taken())))
        known = f"it takes {listed}" if listed else "it takes none"
        raise CallboardError(f"environment {name!r} has no option {found[1]!r}: {known}") from error
    except (gymnasium.error.Error, ImportError) as error:
        raise CallboardError(f"environment {name!r} cannot be made: {' '.join(str(error).split())}") from error
