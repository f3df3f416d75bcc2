"""Limits how far actors run ahead of the learner, so that the weights behind its data are not too old."""

import time
from collections.abc import Callable

from ....data import Version
from ....replay import Pace

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
      clock: returns the time in seconds; monotonic.
    """

    def __init__(self, pace: Pace, index: int, clock: Callable[[], float] = time.monotonic):
        self._pace = pace
        self._index = index
        self._clock = clock
        self._limit = pace.items_per_actor * (pace.max_policy_lag + 1)
        self._in_flight = 0
        self._version: Version | None = None
        self._timesteps = 0
        self._has_begun = False
        self._begun = self._ended = clock()

    @property
    def between_sequences(self) -> bool:
        """Whether the last sequence is complete, and no timestep of the next has been counted."""
        return self._timesteps == 0

    @property
    def waits_to_begin(self) -> bool:
        """Whether `begin` must be called before the next timestep."""
        return self._timesteps == 0 and not self._has_begun

    @property
    def patience(self) -> float:
        """Seconds to wait before contributing an extra item: (1 s + duration of the last sequence) * (index + 1).

        Later actors wait longer, so that not all of them contribute when one item is missing.
        """
        return (1 + self._index) * (_PATIENCE_SECONDS + self._ended - self._begun)

    def may_begin(self, version: Version) -> bool:
        """Returns whether weights of this version are new enough to begin another sequence."""
        if self._version is None or version.incarnation != self._version.incarnation:
            # A restarted learner needs new data, regardless of what the previous incarnation received.
            self._in_flight = 0
        else:
            consumed = self._pace.items_per_actor * (version.step - self._version.step)
            self._in_flight = max(0, self._in_flight - consumed)
        self._version = version
        return self._in_flight < self._limit

    def may_help(self, short_of_data: float) -> bool:
        """Returns whether to contribute an extra item to a learner that has waited `short_of_data` seconds for data."""
        return min(short_of_data, self._clock() - self._ended) >= self.patience

    def begin(self) -> None:
        """Begins a sequence."""
        self._in_flight = min(self._in_flight + 1, self._limit)
        self._has_begun = True
        self._begun = self._clock()

    def rest(self) -> None:
        """Prepares for a next timestep that may come much later."""

    def count_timestep(self) -> bool:
        """Counts a timestep; returns True if it completes the sequence."""
        self._has_begun = False
        self._timesteps = (self._timesteps + 1) % self._pace.unroll_length
        if self.between_sequences:
            self._ended = self._clock()
        return self.between_sequences
