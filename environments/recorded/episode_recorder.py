"""Cuts the timesteps of a batch of environments into episodes, in a thread of its own, and passes them on."""

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tree

from ...data import Nest, Timestep, any_true
from ...specs import EnvironmentSpec
from ..batches.batched import BatchedEnvironment, EnvironmentWrapper
from ..batches.encoding import encoding_of
from .episode_columns import EpisodeColumns, columns_of
from .native_values import native_values, space_of

_PASS_ON_BYTES = 2**24
_PASS_ON_SECONDS = 1.0
_OPEN_BYTES = 2**30
"""Memory that open episodes may take; longer ones are not recorded."""

Sink = Callable[[list[EpisodeColumns]], bool]
"""Takes episodes, and returns once they are safe: True, or False if it takes no more."""


class _Row(NamedTuple):
    """What the batch did at one timestep."""

    observation: list[np.ndarray]
    action: list[np.ndarray]
    reward: np.ndarray


class _Ended(NamedTuple):
    """An episode that has ended, as views of the batch's rows."""

    env: int
    rows: list[_Row]
    final: list[np.ndarray]
    terminated: bool
    seed: int | None


class EpisodeRecorder:
    """Records whole episodes of a batch; what it receives must not be modified later.

    An episode that was cut off, and whose last observation its library has lost, ends one action earlier.

    Args:
      spec: spec of the environments.
      seeds: the seed of each environment's first episode; None for environments that were reset without one.
      sink: takes the episodes, in the recorder's thread.
      notify: takes a line for the user.
      quota: number of episodes of each environment that are recorded, the first ones; None for all.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        seeds: Sequence[int | None],
        sink: Sink,
        notify: Callable[[str], object] = lambda text: None,
        quota: int | None = None,
    ):
        self._spec = spec
        self._encoding = encoding_of(spec)
        self._spaces = space_of(self._encoding.observation), space_of(self._encoding.action)
        self._seeds = list(seeds)
        self._left = [math.inf if quota is None else quota] * len(self._seeds)
        self._sink = sink
        self._notify = notify
        self._rows: list[_Row] = []
        self._dropped = 0
        """Number of rows before the first one that is kept."""
        self._begun: list[int | None] = []
        """The row in which each environment's episode began; None for one that is not recorded."""
        self._observation: list[np.ndarray] = []
        self._last = np.zeros(0, np.bool_)
        self._row_bytes = 1
        self._full = False
        self._reported_length = False
        self._failure: BaseException | None = None
        self._ended: queue.Queue[_Ended | None] = queue.Queue(4 * len(self._seeds) + 16)
        self._thread = threading.Thread(target=self._pass_on, name="episodes", daemon=True)
        self._thread.start()

    def begin(self, timestep: Timestep) -> None:
        """Takes the first timestep of all environments; open episodes are left out."""
        self._rows, self._dropped = [], 0
        self._begun = [0] * len(timestep.first)
        self._observation = tree.flatten(timestep.observation)
        self._last = timestep.last
        self._row_bytes = 1 + sum(leaf.nbytes for leaf in self._observation)

    def step(self, action: Nest, timestep: Timestep) -> None:
        """Takes an action and the timestep that followed; waits if the sink is slower than the environments."""
        if self._failure is not None:
            raise self._failure
        if self._full:
            return
        self._rows.append(_Row(self._observation, tree.flatten(action), timestep.reward))
        row = self._dropped + len(self._rows)
        final = tree.flatten(timestep.observation)
        ended = timestep.last | timestep.first
        if any_true(ended):
            for env in ended.nonzero()[0].tolist():
                self._end(env, row, final, timestep)
        self._observation, self._last = final, timestep.last
        if len(self._rows) & 255 == 0:
            self._trim()

    def close(self, timeout: float = 60.0) -> None:
        """Passes on all episodes that have ended."""
        self._ended.put(None)
        self._thread.join(timeout)
        if self._failure is not None:
            raise self._failure

    def _end(self, env: int, row: int, final: list[np.ndarray], timestep: Timestep) -> None:
        """Ends the episode of an environment with row `row - 1`, unless it has ended before."""
        begun, seed = self._begun[env], self._seeds[env]
        if self._last[env]:
            # The action was ignored: the next episode begins here.
            self._begun[env] = row
            return
        self._seeds[env] = None
        self._begun[env] = None if timestep.last[env] else row
        if begun is None or not self._left[env]:
            return
        self._left[env] -= 1
        rows = self._rows[begun - self._dropped :]
        terminated = not timestep.discount[env]
        if not timestep.last[env]:
            # Its final observation is lost.  Nothing depends on it after a termination.
            final = rows[-1].observation
            rows = rows if terminated else rows[:-1]
        if rows:
            self._ended.put(_Ended(env, rows, final, terminated, seed))

    def _trim(self) -> None:
        """Forgets rows of no open episode, and episodes that take too much memory."""
        most = _OPEN_BYTES // self._row_bytes
        end = self._dropped + len(self._rows)
        for env, begun in enumerate(self._begun):
            if begun is not None and end - begun > most:
                self._begun[env] = None
                if not self._reported_length:
                    self._reported_length = True
                    self._notify(f"an episode is longer than {most:,} steps, more than is kept: it is not recorded")
        first = min((begun for begun in self._begun if begun is not None), default=end)
        del self._rows[: first - self._dropped]
        self._dropped = first

    def _pass_on(self) -> None:
        try:
            self._pass_on_until_closed()
        except BaseException as error:
            self._failure = error

    def _pass_on_until_closed(self) -> None:
        waiting: list[EpisodeColumns] = []
        waiting_bytes, since, closed = 0, time.monotonic(), False
        while not closed:
            try:
                ended = self._ended.get(timeout=_PASS_ON_SECONDS)
                closed = ended is None
                if ended is not None and not self._full:
                    if not waiting:
                        since = time.monotonic()
                    waiting.append(self._columns(ended))
                    waiting_bytes += waiting[-1].nbytes
            except queue.Empty:
                pass
            late = time.monotonic() - since > _PASS_ON_SECONDS or waiting_bytes > _PASS_ON_BYTES
            if waiting and (late or closed):
                self._full = not self._sink(waiting) or self._full
                waiting, waiting_bytes = [], 0

    def _columns(self, ended: _Ended) -> EpisodeColumns:
        env, rows, length = ended.env, ended.rows, len(ended.rows)
        observed = [
            np.stack([row.observation[index][env] for row in rows] + [final[env]])
            for index, final in enumerate(ended.final)
        ]
        acted = [np.stack([row.action[index][env] for row in rows]) for index in range(len(rows[0].action))]
        ends = np.zeros(length, np.bool_)
        ends[-1] = True
        observation = native_values(self._encoding.observation, tree.unflatten_as(self._spec.observation, observed))
        action = native_values(self._encoding.action, tree.unflatten_as(self._spec.action, acted))
        values = {
            **dict(columns_of(self._spaces[0], observation, "observations")),
            **dict(columns_of(self._spaces[1], action, "actions")),
            "rewards": np.array([row.reward[env] for row in rows], np.float32),
            "terminations": ends & ended.terminated,
            "truncations": ends & (not ended.terminated),
        }
        return EpisodeColumns(values, length, ended.seed)


class RecordedEnvironment(EnvironmentWrapper):
    """Records what happens in a batch of environments.

    Args:
      environment: the batch.
      recorder: records its episodes; closed with the batch.
    """

    def __init__(self, environment: BatchedEnvironment, recorder: EpisodeRecorder):
        super().__init__(environment)
        self._recorder = recorder

    def reset(self) -> Timestep:
        timestep = super().reset()
        self._recorder.begin(timestep)
        return timestep

    def step(self, actions: Nest) -> Timestep:
        timestep = super().step(actions)
        self._recorder.step(actions, timestep)
        return timestep

    def close(self) -> None:
        try:
            self._recorder.close()
        finally:
            super().close()
