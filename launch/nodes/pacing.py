"""Holding actors back, so that the weights that they act with are not too old when the learner comes to it."""

import time

from ...data import Version
from ...replay import Pace

_PATIENCE_SECONDS = 1.0


class Pacer:
    """Says when an actor may begin another sequence.

    An actor may have `items_per_actor * (max_policy_lag + 1)` items on their way that no learner step has had its share
    of yet: all actors together have never more than `max_policy_lag + 1` learner steps take.  How many there are is
    worked out from the steps of the weights that the actor gets: actors do not know of each other.

    Where the learner is short of data although this actor has given its share, another one is dead or slow.  After
    `patience` this one gives one item more.

    Args:
      pace: what the agent asks for.
      index: of the actor.
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
        """Whether the next timestep needs a `begin` before it."""
        return self._timesteps == 0 and not self._may_timestep

    @property
    def patience(self) -> float:
        """Seconds to wait before helping out: a second and what the last sequence took, times the actor's number.

        The others wait longer than the first, so that not all of them help out where one item is missing.
        """
        return (1 + self._index) * (_PATIENCE_SECONDS + self._ended - self._begun)

    @property
    def seconds_waited(self) -> float:
        """Since the last sequence was complete."""
        return time.monotonic() - self._ended

    def may_begin(self, version: Version) -> bool:
        """Whether weights of this version are new enough to begin another sequence with."""
        if self._version is None or version.incarnation != self._version.incarnation:
            # A learner that was restarted asks for new data, whatever the one before it was given.
            self._on_their_way = 0
        else:
            had_their_share = self._pace.items_per_actor * (version.step - self._version.step)
            self._on_their_way = max(0, self._on_their_way - had_their_share)
        self._version = version
        return self._on_their_way < self._limit

    def begin(self) -> None:
        """A sequence begins."""
        self._on_their_way = min(self._on_their_way + 1, self._limit)
        self._may_timestep = True
        self._begun = time.monotonic()

    def timestep(self) -> bool:
        """Counts a timestep; True if the sequence is complete with it."""
        self._may_timestep = False
        self._timesteps = (self._timesteps + 1) % self._pace.unroll_length
        if self.between_sequences:
            self._ended = time.monotonic()
        return self.between_sequences
