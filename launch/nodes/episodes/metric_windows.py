"""Means, minima, maxima and distributions of the metrics of the newest episodes."""

import collections
import itertools
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ....environments.batches.tasks import Task
from ....environments.multi_agent.policy_slots import MultiAgentEpisode
from .episode_watch import PREFIX, WatchedEpisode

WINDOW = 100
"""Episodes over which metrics are aggregated."""
E = TypeVar("E", WatchedEpisode, MultiAgentEpisode)


class EpisodeValues(NamedTuple):
    """Metrics of successive episodes of one task, as nodes report them; plain Python values only."""

    task: Task
    values: dict[str, list[float]]
    """Values by name; an episode that lacks a metric adds none."""


def report_episodes(episodes: Iterable[WatchedEpisode]) -> list[EpisodeValues]:
    """Returns a node's report of the episodes that have ended, in their order."""
    reported: list[EpisodeValues] = []
    for _, successive in itertools.groupby(episodes, lambda episode: _key(episode.task)):
        for number, episode in enumerate(successive):
            if number == 0:
                reported.append(EpisodeValues(episode.task, {}))
            for name, value in episode.values.items():
                reported[-1].values.setdefault(name, []).append(value)
    return reported


class MetricWindows:
    """The values of the newest episodes, and of those of the current task.

    Args:
      histograms: names of the metrics whose distributions are wanted.
    """

    def __init__(self, histograms: Sequence[str] = ()):
        self._histograms = histograms
        self._windows: dict[str, collections.deque[float]] = {}
        self._of_task: dict[str, collections.deque[float]] = {}
        self._task = _key(None)

    def set_task(self, task: Task) -> None:
        """Forgets the values of the current task if another one begins."""
        if _key(task) != self._task:
            self._task = _key(task)
            self._of_task = {}

    def add(self, reported: Iterable[Sequence[Any]]) -> None:
        """Adds values that a node has reported, the fields of `EpisodeValues`."""
        for task, values in reported:
            for name, numbers in values.items():
                self._windows.setdefault(name, collections.deque(maxlen=WINDOW)).extend(numbers)
                if _key(task) == self._task:
                    self._of_task.setdefault(name, collections.deque(maxlen=WINDOW)).extend(numbers)

    def row(self) -> dict[str, float]:
        """Returns mean, minimum and maximum of every metric over the newest episodes."""
        row: dict[str, float] = {}
        for name in sorted(self._windows):
            if name.startswith(PREFIX):  # The others are metrics of their own.
                row.update(aggregated(name, self._windows[name]))
        return row

    def histograms(self) -> dict[str, list[float]]:
        """Returns the values of the newest episodes of the metrics whose distributions are wanted."""
        return {name: list(self._windows[name]) for name in self._histograms if name in self._windows}

    def row_of_task(self, episodes: int) -> dict[str, float]:
        """Returns mean, minimum and maximum over the newest episodes that began with the current task.

        Args:
          episodes: the number of episodes that a metric must have, at most `WINDOW`; those with fewer are left out.
        """
        row: dict[str, float] = {}
        for name, values in sorted(self._of_task.items()):
            if len(values) >= episodes:
                row.update(aggregated(name, list(values)[-episodes:]))
        return row


def aggregated(name: str, values: Iterable[float]) -> Mapping[str, float]:
    """Returns mean, minimum and maximum of some values, by the names of the metrics.

    Call it in the order of the names: of metrics `a` and `a_min`, the mean of the latter then replaces the minimum.
    """
    values = list(values)
    return {name: statistics.fmean(values), f"{name}_min": min(values), f"{name}_max": max(values)}


def first_episodes(episodes: Iterable[E], quota: int) -> Iterator[E]:
    """Yields the first `quota` episodes of each environment."""
    played: collections.Counter[int] = collections.Counter()
    for episode in episodes:
        played[episode.env] += 1
        if played[episode.env] <= quota:
            yield episode


def evaluation_metrics(episodes: Sequence[WatchedEpisode], quota: int) -> dict[str, float]:
    """Returns mean, minimum and maximum of the metrics of an evaluation's episodes, as `evaluator/episode/...`.

    Args:
      episodes: all episodes that ended since the reset, in order.
      quota: the number of episodes of each environment, the first ones, that belong to the evaluation.
    """
    values: dict[str, list[float]] = {}
    for episode in first_episodes(episodes, quota):
        for name in episode.values:
            if name.startswith(PREFIX):
                values.setdefault(name, []).append(episode.values[name])
    metrics: dict[str, float] = {}
    for name, of_episodes in sorted(values.items()):
        metrics.update(aggregated(f"evaluator/{name}", of_episodes))
    return metrics


def _key(task: Task) -> str:
    return json.dumps(task, sort_keys=True)
