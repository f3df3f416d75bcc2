"""Writer that holds timesteps back until their episodes have ended, and then writes windows with further goals."""

import collections
from typing import Any, NamedTuple

import numpy as np

from ...data import Nest, Record
from ...settings.replay_settings import HindsightSettings
from ...specs import ACHIEVED
from .hindsight import UNKNOWN, Hindsight, RewardsOfGoals, chosen_goals, hindsight_of
from .windows import WindowWriter


class _Held(NamedTuple):
    """A timestep that is held back; arrays `[B, ...]`."""

    record: Record
    hindsight: Hindsight
    infos: Any
    """Those that followed the actions, by environment."""


class HindsightWriter:
    """Writes the timesteps of one actor's environments as windows, each with its own goal and with further ones.

    A timestep is written after the episodes that it is of have ended in all environments.  At most one is written for
    each that comes, so that replay does not get a whole episode at once.  What is held back is at most as long as the
    longest episode so far, or as `settings.horizon`.

    Args:
      writer: writes the windows.
      steps: transitions in a window (n).
      settings: how many goals, and which.
      rewards: gives the rewards for them.
      seed: seed of the choice of goals.
      batch: number of environments (B).
    """

    def __init__(
        self,
        writer: WindowWriter,
        steps: int,
        settings: HindsightSettings,
        rewards: RewardsOfGoals,
        seed: tuple[int, ...],
        batch: int,
    ):
        self._writer = writer
        self._steps = steps
        self._settings = settings
        self._rewards = rewards
        self._seed = seed
        self._batch = batch
        self._held: collections.deque[_Held] = collections.deque()
        self._written = 0
        """Timesteps that are not held back any more."""
        self._begun = np.zeros(batch, np.int64)
        """The first timestep whose goals are not chosen, by environment."""

    @property
    def items_written(self) -> int:
        """Items created so far."""
        return self._writer.items_written

    def append(self, record: Record, state: Nest = ()) -> None:
        """Adds one timestep, a `Record` of arrays `[B, ...]`; the policy's state is not stored.  Never blocks."""
        newest = self._written + len(self._held)
        # Where an episode was reset in the same step, its final observation is lost.
        for env in np.flatnonzero(record.first & (self._begun < newest)):
            self._choose(env, newest - 1, newest)
        self._held.append(_Held(record, self._unknown(record), self._rewards.infos()))
        for env in np.flatnonzero(record.last):
            self._choose(env, newest, newest + 1)
        for env in np.flatnonzero(newest - self._begun >= self._settings.horizon):
            self._choose(env, newest, newest)
        if self._begun.min() > self._written:
            self._write()

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """See `ItemWriter.ready`."""
        return self._writer.ready(timeout, max_pending)

    def close(self) -> None:
        """Writes what is held back, as if all episodes ended here; see `WindowWriter.close`."""
        newest = self._written + len(self._held) - 1
        for env in np.flatnonzero(self._begun < newest):
            self._choose(env, newest, newest + 1)
        while self._held:
            self._write()
        self._writer.close()

    def _choose(self, env: int, last: int, following: int) -> None:
        """Chooses goals for the timesteps of an environment from its first without on, and computes their rewards.

        Args:
          env: index of the environment.
          last: the last timestep with the same episode, whose own transition is not known.
          following: the timestep from which on goals are chosen next.
        """
        begun, self._begun[env] = int(self._begun[env]), following
        length = last - begun
        if length < 1:
            return
        held = [self._held[index] for index in range(begun - self._written, last - self._written + 1)]
        rng = np.random.default_rng((*self._seed, int(env), begun))
        hindsight = hindsight_of(
            np.stack([one.record.observation[ACHIEVED][env] for one in held]),
            np.array([one.record.discount[env] for one in held[:-1]]),
            [one.infos[env] for one in held[:-1]],
            chosen_goals(self._settings.strategy, length, self._settings.goals, rng),
            self._steps,
            self._rewards,
            int(env),
        )
        for one, *leaves in zip(held, *hindsight, strict=False):
            for kept, leaf in zip(one.hindsight, leaves, strict=True):
                kept[env] = leaf

    def _unknown(self, record: Record) -> Hindsight:
        """Returns the further goals of a timestep before they are chosen."""
        goal = record.observation[ACHIEVED]
        shape = self._batch, self._settings.goals
        return Hindsight(
            np.zeros((*shape, *goal.shape[1:]), goal.dtype),
            np.zeros((*shape, self._steps), np.float32),
            np.full((*shape, self._steps), UNKNOWN, np.uint8),
        )

    def _write(self) -> None:
        """Writes the timestep that has been held back for the longest."""
        held = self._held.popleft()
        self._written += 1
        self._writer.append_with(held.record, (), tuple(held.hindsight))
