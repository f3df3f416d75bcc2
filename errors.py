"""Errors that the user can fix, and the names that their messages suggest."""

import difflib
from collections.abc import Iterable


class CallboardError(Exception):
    """An error that the user can fix.

    The message is one line that says what is wrong and how to fix it.  It is shown without a traceback, and a node that
    raises it is not restarted.
    """


def one_line(error: BaseException) -> str:
    """Returns `ValueError: first line of the message`; the message alone of a `CallboardError`."""
    if isinstance(error, CallboardError):
        return str(error)
    first_line = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}".removesuffix(": ")


def unknown(what: str, name: object, known: Iterable[str], otherwise: str = "") -> CallboardError:
    """Returns the error for a name that does not exist: `unknown torso 'ml'; did you mean 'mlp'?`

    Args:
      what: what the name is meant to be, such as `torso`.
      name: the user's name.
      known: all names that exist.
      otherwise: hint if no known name is similar; by default, all known names.
    """
    return CallboardError(f"unknown {what} {name!r}; {suggestion(str(name), known, otherwise)}")


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Returns `did you mean 'mlp'?` for the known name most similar to `name`, or `otherwise` as in `unknown`."""
    known = list(known)
    near = nearest(name, known)
    if near is not None:
        return f"did you mean {near!r}?"
    return otherwise or f"choose from {', '.join(known) or 'none'}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name most similar to `name`, ignoring case, or None if none is similar."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None
