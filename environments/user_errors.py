"""What users get wrong when they name an environment and its options, said in one line."""

import contextlib
import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import gymnasium

from ..data import CallboardError
from ..named_objects import refuse_standard_library


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
    refuse_standard_library(f"environment {name!r}", module)
    try:
        return importlib.import_module(module)
    except (ValueError, TypeError) as error:
        if module and not module.startswith("."):
            raise
        raise CallboardError(f"unknown environment {name!r}: {module!r} is no module's name") from error
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            reason = f"there is no module {error.name!r} on the Python path"
            raise CallboardError(f"unknown environment {name!r}: {reason}") from error
        raise CallboardError(f"environment {name!r}: the import of {module!r} fails: {error}") from error


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is most like `name`, in upper or lower case; None where none is like it."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def unknown_environment(name: str, known: Iterable[str], otherwise: str, beginning: str = "") -> CallboardError:
    """The error for an environment that nobody knows.

    Args:
        name: what the user wrote.
        known: names without `beginning`; the nearest is suggested.
        otherwise: what is said where none is near.
        beginning: what all names have in common, and what makes none of them nearer.
    """
    rest = name[len(beginning) :] if name.lower().startswith(beginning.lower()) else name
    close = nearest(rest, known)
    right = f"did you mean {beginning + close!r}?" if close else otherwise
    return CallboardError(f"unknown environment {name!r}: {right}")


def unknown_option(name: str, option: str, taken: Iterable[str]) -> CallboardError:
    """The error for an option that the environment `name`, which takes those of `taken`, does not take."""
    listed = ", ".join(sorted(set(taken)))
    return CallboardError(f"environment {name!r} has no option {option!r}: it takes {listed or 'none'}")


@contextlib.contextmanager
def needs_package(name: str, package: str, install: str) -> Iterator[None]:
    """Turns a failing import of what the environment `name` needs into a `CallboardError` that says how to mend it.

    Args:
        name: the environment that is being made.
        package: as package indices call it.
        install: what to give to `pip install`.
    """
    try:
        yield
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise CallboardError(
            f"environment {name!r} needs the package {package!r} ({reason}): pip install {install!r}"
        ) from error


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
        raise unknown_option(name, found[1], taken()) from error
    except (gymnasium.error.Error, ImportError) as error:
        raise CallboardError(f"environment {name!r} cannot be made: {' '.join(str(error).split())}") from error
