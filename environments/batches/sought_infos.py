"""Infos that a user has chosen by their keys, and which of them never appear."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import suggestion
from .infos import Info

EPISODES_TO_LOOK = 10
"""Episodes after which a user learns that a key has not appeared in any info."""


class SoughtInfos:
    """Remembers which of the chosen keys have appeared in infos so far.

    Args:
      keys: the keys in infos, see `found`.
      what: what a user has chosen by them, such as `the episode metric`.
    """

    def __init__(self, keys: Iterable[str], what: str):
        self.missing = set(keys)
        """Keys that have not appeared so far."""
        self._what = what
        self._seen: set[str] = set()

    def look(self, info: Info) -> None:
        """Looks at the keys of an info; need not be called if none is missing."""
        self._seen.update(_keys(info))
        self.missing -= self._seen

    def describe_missing(self) -> str:
        """Returns a line about the keys that no info has had so far, once; empty if all have appeared."""
        if not self.missing:
            return ""
        seen = sorted(self._seen)
        hints = [suggestion(key, seen, f"it has {', '.join(seen) or 'none'}") for key in sorted(self.missing)]
        keys = ", ".join(map(repr, sorted(self.missing)))
        self.missing = set()
        return f"no info so far has {self._what} {keys}; {hints[0]}"


def found(info: Info, key: str) -> Any:
    """Returns what an info has by a key, or by `a.b` as the key `b` in its mapping `a`; None if it has neither."""
    if key in info:
        return info[key]
    value: Any = info
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def is_key(text: str) -> bool:
    """Returns whether a text can be a key, as in `found`."""
    return all(part.strip() for part in text.split("."))


def repeated(names: Sequence[str]) -> str | None:
    """Returns the first name that appears twice."""
    return next((name for name in names if names.count(name) > 1), None)


def _keys(info: Info, prefix: str = "") -> Iterable[str]:
    for key, value in info.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")
