"""Patterns for parts of a network, such as `torso/*`."""

import fnmatch
from collections.abc import Iterable, Sequence

from ...errors import CallboardError, suggestion


def matching(names: Iterable[str], patterns: Sequence[str], setting: str) -> list[str]:
    """Returns the names that match any of the patterns, in order.

    A pattern is a path with wildcards as in file names, where `*` also stands for several parts of a path.  It matches
    a name from any part on, and everything below: `torso`, `torso/*` and `online/torso` match
    `online/torso/dense_0/bias`.

    Args:
      names: names of weights, see `weight_names`.
      patterns: the patterns.
      setting: name of the setting that has the patterns, for messages.

    Raises:
      CallboardError: a pattern matches none of the names.
    """
    names = list(names)
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            parts = parts_of(names)
            short = dict.fromkeys([*parts, *(part.rpartition("/")[2] for part in parts)])
            known = [*(f"{part}/*" for part in short), *short, *names]
            hint = f"the network has {', '.join(part for part in parts if '/' not in part) or 'no weights'}"
            raise CallboardError(
                f"{setting} {pattern!r} matches no weights of the network; {suggestion(pattern, known, hint)}"
            )
    return [name for name in names if any(_matches(name, pattern) for pattern in patterns)]


def parts_of(names: Iterable[str]) -> list[str]:
    """Returns the parts of a network at the first two levels: `core`, `head`, `head/value`, ..."""
    paths = [name.split("/") for name in names]
    return sorted({"/".join(path[:depth]) for path in paths for depth in (1, 2) if len(path) > depth})


def _matches(name: str, pattern: str) -> bool:
    parts, pattern = name.split("/"), pattern.strip("/")
    ends = ["/".join(parts[begin:]) for begin in range(len(parts))]
    return any(fnmatch.fnmatchcase(end, pattern) or fnmatch.fnmatchcase(end, f"{pattern}/*") for end in ends)
