"""The `info` that an environment's library returns beside a timestep, by environment of a batch."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

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


def info_rows(info: Info, batch_size: int) -> list[dict[str, Any]]:
    """Splits the info of a Gymnasium vector environment by environment, without what it says of final observations.

    A key `_name` is the mask of `name`: the environments that have it.  Arrays, lists and tuples of `batch_size`
    elements are split; any other value is one for all.

    Args:
      info: the vector environment's info.
      batch_size: the number of environments.
    """
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
