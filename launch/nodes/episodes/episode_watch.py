"""Watches the episodes of a batch of environments, for episode metrics and callbacks."""

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ....callbacks import EpisodeView
from ....data import Nest, Timestep
from ....environments import BatchedEnvironment, EnvironmentWrapper
from ....environments.batches.episode_metrics import EpisodeMetric, EpisodeMetrics
from ....environments.batches.infos import EPISODES_TO_LOOK, NO_INFO, Info
from ....environments.batches.tasks import Task
from ....errors import CallboardError
from .callback_calls import CallbackCalls

EPISODE_METHODS = ("on_episode_start", "on_episode_step", "on_episode_end")
PREFIX = "episode/"
"""Prefix of the names of metrics of episodes."""
EPISODE_RETURN, EPISODE_LENGTH = "actor/episode_return", "actor/episode_length"


class WatchedEpisode(NamedTuple):
    """An episode that has ended."""

    env: int
    """Index in the batch."""
    task: Task
    """The task that had last been set when the episode began."""
    values: dict[str, float]
    """Its metrics by name: `episode/...`, and its return and length by the names of their means."""


class WatchedEnvironment(EnvironmentWrapper):
    """Forwards all calls to another environment, and keeps the metrics of the episodes that end.

    It adds work to every timestep, so it is only made for runs that have episode metrics, callbacks, or a curriculum
    that depends on episodes.

    Args:
      environment: the other environment.
      metrics: what is taken from the infos.
      calls: the callbacks, of which those of episodes are called; None for none.
      first_slot: slot of the first environment.
      notify: receives a line for the user about metrics that never appear.
    """

    def __init__(
        self,
        environment: BatchedEnvironment,
        metrics: Sequence[EpisodeMetric],
        calls: CallbackCalls | None = None,
        first_slot: int = 0,
        notify: Callable[[str], None] = lambda text: None,
    ):
        super().__init__(environment)
        self._metrics = EpisodeMetrics(metrics, environment.batch_size) if metrics else None
        self._calls = calls if calls is not None and calls.has(*EPISODE_METHODS) else None
        self._steps = calls is not None and calls.has("on_episode_step")
        self._first_slot = first_slot
        self._notify = notify
        self._task: Task = None
        self._tasks: list[Task] = [None] * environment.batch_size
        self._returns = [0.0] * environment.batch_size
        self._lengths = [0] * environment.batch_size
        self._views: list[EpisodeView | None] = [None] * environment.batch_size
        self._was_last = np.zeros(environment.batch_size, np.bool_)
        self._ended: collections.deque[WatchedEpisode] = collections.deque()
        self._episodes_looked_at = 0
        if self._metrics is not None:
            environment.keep_infos()
        elif self._calls is not None:
            try:
                environment.keep_infos()
            except CallboardError:
                pass  # Callbacks then see empty infos.

    def take_ended(self) -> list[WatchedEpisode]:
        """Returns the episodes that have ended since the last call, in any thread."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def set_task(self, task: Task) -> None:
        super().set_task(task)
        self._task = task

    def reset(self) -> Timestep:
        timestep = super().reset()
        self._was_last = np.zeros(self.batch_size, np.bool_)
        for index in range(self.batch_size):
            self._begin(index, timestep)
        return timestep

    def step(self, actions: Nest) -> Timestep:
        timestep = super().step(actions)
        was_last, over = self._was_last.tolist(), (timestep.last | timestep.first).tolist()
        infos = self.infos
        for index in range(len(over)):
            if was_last[index]:
                self._begin(index, timestep)
                continue
            self._advance(index, actions, timestep, NO_INFO if infos is None else infos.followed[index])
            if over[index]:
                self._end(index)
                if not timestep.last[index]:
                    self._begin(index, timestep)
        self._was_last = timestep.last
        return timestep

    def close(self) -> None:
        self._report_missing_keys()
        super().close()

    def _begin(self, index: int, timestep: Timestep) -> None:
        self._returns[index], self._lengths[index], self._tasks[index] = 0.0, 0, self._task
        if self._metrics is not None:
            self._metrics.begin(index)
        if self._calls is not None:
            info = NO_INFO if self.infos is None else self.infos.begun[index]
            # With reward 0 and discount 1, also where the library shows the end of the episode before in this timestep.
            begun = timestep._replace(reward=np.zeros_like(timestep.reward), discount=np.ones_like(timestep.discount))
            view = EpisodeView(self._first_slot + index, self._task, index, begun, info)
            self._views[index] = view
            self._calls.call("on_episode_start", view)

    def _advance(self, index: int, actions: Nest, timestep: Timestep, info: Info) -> None:
        self._returns[index] += float(timestep.reward[index])
        self._lengths[index] += 1
        if self._metrics is not None:
            self._metrics.add(index, info)
        view = self._views[index]
        if view is not None and self._calls is not None:
            view.advance(actions, timestep, info)
            if self._steps:
                self._calls.call("on_episode_step", view)

    def _end(self, index: int) -> None:
        values = dict(self._metrics.end(index)) if self._metrics is not None else {}
        view = self._views[index]
        if view is not None and self._calls is not None:
            values.update(self._calls.call("on_episode_end", view))
        values = {f"{PREFIX}{name}": value for name, value in values.items()}
        values[EPISODE_RETURN], values[EPISODE_LENGTH] = self._returns[index], float(self._lengths[index])
        self._ended.append(WatchedEpisode(index, self._tasks[index], values))
        self._episodes_looked_at += 1
        if self._episodes_looked_at == EPISODES_TO_LOOK:
            self._report_missing_keys()

    def _report_missing_keys(self) -> None:
        missing = "" if self._metrics is None or not self._episodes_looked_at else self._metrics.describe_missing()
        if missing:
            self._notify(missing)
