"""Metrics of episodes from the environments' infos: which values, and what becomes of them over an episode."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import CallboardError, check_text, type_text, unknown
from .infos import Info, SoughtInfos, found, is_key, repeated

_SUM, _HISTOGRAM, _FINAL = "sum", "histogram", "final"


class EpisodeMetric(NamedTuple):
    """A value in an environment's info that is a metric of its episodes."""

    key: str
    """The key in the info; `a.b` for the key `b` in a mapping `a`."""
    summed: bool = False
    """Whether the metric is the sum over the episode's steps, instead of the last value."""
    histogram: bool = False
    """Whether its distribution over episodes is recorded too."""

    @property
    def name(self) -> str:
        """Name of the metric: the key, with `_sum` at the end if it is summed."""
        return f"{self.key}_{_SUM}" if self.summed else self.key


def parse_episode_metrics(texts: str | Sequence[str]) -> tuple[EpisodeMetric, ...]:
    """Parses metrics written as `key`, `key:sum`, `key:histogram` or `key:sum:histogram`.

    Args:
      texts: a list, or text with commas between the metrics.

    Raises:
      CallboardError: one is written in another way, or twice.
    """
    metrics: list[EpisodeMetric] = []
    for text in ",".join([texts] if isinstance(texts, str) else texts).split(",") if texts else ():
        key, *options = (part.strip() for part in text.split(":"))
        if not is_key(key):
            raise CallboardError(f"episode_metrics: {text!r} names no key of the environment's info")
        check_text(key, "episode_metrics has the key")
        for option in options:
            if option not in (_SUM, _FINAL, _HISTOGRAM):
                raise unknown(f"option of the episode metric {key!r}:", option, (_SUM, _FINAL, _HISTOGRAM))
        if _SUM in options and _FINAL in options:
            raise CallboardError(f"the episode metric {text!r} is either the sum or the final value: choose one")
        metrics.append(EpisodeMetric(key, _SUM in options, _HISTOGRAM in options))
    twice = repeated([metric.name for metric in metrics])
    if twice is not None:
        raise CallboardError(f"the episode metric {twice!r} is named twice: leave one out")
    return tuple(metrics)


class EpisodeMetrics:
    """Accumulates the metrics of the current episode of each of B environments.

    Args:
      metrics: what is taken from the infos.
      batch_size: the number of environments, B.
    """

    def __init__(self, metrics: Sequence[EpisodeMetric], batch_size: int):
        self._metrics = [(metric.name, metric.key, metric.summed) for metric in metrics]
        self._values: list[dict[str, float]] = [{} for _ in range(batch_size)]
        self._sought = SoughtInfos((metric.key for metric in metrics), "the episode metric")

    def begin(self, index: int) -> None:
        """Begins an episode of an environment."""
        self._values[index] = {}

    def add(self, index: int, info: Info) -> None:
        """Takes the info of an environment's step.

        Raises:
          CallboardError: a value is not a number.
        """
        values = self._values[index]
        for name, key, summed in self._metrics:
            value = _number(key, found(info, key))
            if value is not None:
                values[name] = values.get(name, 0.0) + value if summed else value
        if self._sought.missing:
            self._sought.look(info)

    def end(self, index: int) -> dict[str, float]:
        """Returns the metrics of an environment's episode, which has ended, without those that never appeared."""
        return self._values[index]

    def describe_missing(self) -> str:
        """Returns a line about the keys that no info has had so far, once; empty if all have appeared."""
        return self._sought.describe_missing()


def as_number(value: Any) -> float | None:
    """Returns a number, a truth value, or an array with one of them, as a float; None for anything else."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bool | int | np.generic | np.ndarray) and np.size(value) == 1:
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            return float(array.reshape(()))
    return None


def _number(key: str, value: Any) -> float | None:
    number = as_number(value)
    if number is None and value is not None:
        raise CallboardError(
            f"the episode metric {key!r} is {type_text(value)} in the environment's info, not a number: leave it out"
        )
    return number
