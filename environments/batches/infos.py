"""The `info` that an environment's library returns beside a timestep, by environment of a batch.

A user chooses infos by their keys; `SoughtInfos` finds out which of them never appear.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ...errors import suggestion

Info = Mapping[str, Any]

NO_INFO: Info = MappingProxyType({})

_FINAL = ("final_obs", "final_info", "final_observation")


class Infos(NamedTuple):
    """The infos that came with a timestep of a batch, one per environment."""

    followed: Sequence[Info]
    """Info of the action just taken; empty where it was ignored, and after a reset of the batch.  Where an episode
    ended and the next began in the same step, that of the episode that ended."""
    begun: Sequence[Info]
    """Info of the reset where an episode begins (`first`); empty elsewhere."""


def no_infos(batch_size: int) -> list[Info]:
    """Returns an empty info for each of `batch_size` environments."""
    return [NO_INFO] * batch_size


class RowInfos(dict[str, Any]):
    """The info of a vector environment that knows the infos of its environments, which may have any keys.

    Args:
      rows: one per environment.
    """

    def __init__(self, rows: Sequence[Info | None]):
        super().__init__()
        self.rows = rows

    def __bool__(self) -> bool:
        return True


def info_rows(info: Info, batch_size: int) -> list[dict[str, Any]]:
    """Splits the info of a Gymnasium vector environment by environment, without what it says of final observations.

    A key `_name` is the mask of `name`: the environments that have it.  Arrays, lists and tuples of `batch_size`
    elements are split; any other value is one for all.

    Args:
      info: the vector environment's info.
      batch_size: the number of environments.
    """
    if isinstance(info, RowInfos):
        return [dict(row or {}) for row in info.rows]
    rows: list[dict[str, Any]] = [{} for _ in range(batch_size)]
    for key, values in info.items():
        if key in _FINAL or (key.startswith("_") and key[1:] in info):
            continue
        if isinstance(values, Mapping):
            values = info_rows(values, batch_size)
        elif not (isinstance(values, np.ndarray | list | tuple) and np.ndim(values) and len(values) == batch_size):
            values = [values] * batch_size
        for index in range(batch_size) if f"_{key}" not in info else np.flatnonzero(info[f"_{key}"]):
            rows[index][key] = values[index]
    return rows


def final_info_rows(info: Info, batch_size: int) -> list[Info]:
    """Returns the infos of the last steps of episodes that ended and were reset in the same step; others are empty."""
    final = info.get("final_info")
    if isinstance(final, Mapping):
        return list(info_rows(final, batch_size))
    if final is None:
        return no_infos(batch_size)
    return [row if isinstance(row, Mapping) else NO_INFO for row in final]


def chosen_rows(mask: np.ndarray, rows: Sequence[Info], others: Sequence[Info]) -> list[Info]:
    """Returns the infos in `rows` where the mask, bool `[B]`, is true, and those in `others` elsewhere."""
    return [row if chosen else other for chosen, row, other in zip(mask, rows, others, strict=True)]


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
