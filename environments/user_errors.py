"""One-line errors for mistakes in the names and options of environments."""

import contextlib
import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import gymnasium

from ..errors import CallboardError
from ..named_objects import refuse_standard_library


def keywords(creator: Callable[..., Any]) -> tuple[list[str], bool]:
    """Returns the names of the keyword arguments of `creator`, and whether it takes arbitrary others."""
    try:
        parameters = inspect.signature(creator).parameters.values()
    except ValueError:  # Some callables written in C have no signature.
        return [], True
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [parameter.name for parameter in parameters if parameter.kind in named]
    return names, any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def import_module(name: str, module: str) -> ModuleType:
    """Imports the `module` of the environment `name`.

    Raises:
      CallboardError: if the module, or one that it imports, does not exist.  Other errors of the module propagate
        with their traceback, for its author.
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
    """Returns the element of `known` closest to `name`, ignoring case, or None if none is close."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def unknown_environment(name: str, known: Iterable[str], otherwise: str, beginning: str = "") -> CallboardError:
    """Returns the error for an unknown environment name.

    Args:
      name: the user's name.
      known: known names without `beginning`; the closest is suggested.
      otherwise: hint if no known name is close.
      beginning: common prefix of all known names, which is excluded from the comparison.
    """
    rest = name[len(beginning) :] if name.lower().startswith(beginning.lower()) else name
    close = nearest(rest, known)
    right = f"did you mean {beginning + close!r}?" if close else otherwise
    return CallboardError(f"unknown environment {name!r}: {right}")


def unknown_option(name: str, option: str, taken: Iterable[str]) -> CallboardError:
    """Returns the error for an unknown option of the environment `name`, whose options are `taken`."""
    listed = ", ".join(sorted(set(taken)))
    return CallboardError(f"environment {name!r} has no option {option!r}: it takes {listed or 'none'}")


@contextlib.contextmanager
def needs_package(name: str, package: str, install: str) -> Iterator[None]:
    """Converts an `ImportError` of a package of the environment `name` into a `CallboardError` with a fix.

    Args:
      name: the environment that is being made.
      package: name of the package on PyPI.
      install: argument of `pip install`.

    Raises:
      CallboardError: if the import fails.
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
    """Converts errors that Python and Gymnasium raise for a user's mistake into a `CallboardError`.

    Args:
      name: the environment that is being made.
      options: the user's options.
      taken: returns the options that the environment takes; called if an option was rejected.

    Raises:
      CallboardError: if an option is unknown, or a package is not installed.
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
