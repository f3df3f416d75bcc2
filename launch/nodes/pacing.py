"""Limits how far actors run ahead of the learner, so that the weights behind its data are not too old."""

import time

from ...data import Version
from ...replay import Pace

_PATIENCE_SECONDS = 1.0


class Pacer:
    """Decides when an actor may begin another sequence.

    An actor may have `items_per_actor * (max_policy_lag + 1)` items in flight, that is, not yet consumed by a learner
    step.  Together, actors never have more than `max_policy_lag + 1` learner steps' worth of items in flight.  The
    number in flight follows from the learner step of the weights that the actor receives, so actors need no knowledge
    of each other.

    If the learner is short of data although this actor has delivered its share, another actor is dead or slow.  After
    `patience` seconds this actor then contributes one extra item.

    Args:
      pace: the agent's pacing.
      index: index of the actor.
    """

    def __init__(self, pace: Pace, index: int):
        self._pace = pace
        self._index = index
        self._limit = pace.items_per_actor * (pace.max_policy_lag + 1)
        self._on_their_way = 0
        self._version: Version | None = None
        self._timesteps = 0
        self._may_timestep = False
        self._begun = self._ended = time.monotonic()

    @property
    def between_sequences(self) -> bool:
        """Whether the last sequence is complete and the next has not begun."""
        return self._timesteps == 0

    @property
    def waits_to_begin(self) -> bool:
        """Whether the next timestep requires a call of `begin`."""
        return self._timesteps == 0 and not self._may_timestep

    @property
    def patience(self) -> float:
        """Seconds to wait before contributing an extra item: (1 s + duration of the last sequence) * (index + 1).

        Later actors wait longer, so that not all of them contribute when one item is missing.
        """
        return (1 + self._index) * (_PATIENCE_SECONDS + self._ended - self._begun)

    @property
    def seconds_waited(self) -> float:
        """Seconds since the last sequence was complete."""
        return time.monotonic() - self._ended

    def may_begin(self, version: Version) -> bool:
        """Returns whether weights of this version are new enough to begin another sequence."""
        if self._version is None or version.incarnation != self._version.incarnation:
            # A restarted learner needs new data, whatever its predecessor received.
            self._on_their_way = 0
        else:
            had_their_share = self._pace.items_per_actor * (version.step - self._version.step)
            self._on_their_way = max(0, self._on_their_way - had_their_share)
        self._version = version
        return self._on_their_way < self._limit

    def begin(self) -> None:
        """Begins a sequence."""
        self._on_their_way = min(self._on_their_way + 1, self._limit)
        self._may_timestep = True
        self._begun = time.monotonic()

    def timestep(self) -> bool:
        """Counts a timestep; returns True if it completes the sequence."""
        self._may_timestep = False
        self._timesteps = (self._timesteps + 1) % self._pace.unroll_length
        if self.between_sequences:
            self._ended = time.monotonic()
        return self.between_sequences
