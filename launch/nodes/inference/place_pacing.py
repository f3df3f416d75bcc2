"""Pacing of the places of a policy server, of which only some may be in use."""

import time
from collections.abc import Callable

from ....data import Version
from ....replay import Pace
from ..acting.pacing import Pacer

_PATIENCE_SECONDS = 1.0


class SharedPace:
    """Limits how far the places of a policy server run ahead of the learner together.

    `Pacer` gives each actor the same share.  Simulators come and go: those that are there may use the shares of all
    places.  A sequence counts from its beginning until a learner step consumes it, but not while its place rests in the
    middle of it.

    Args:
      pace: the agent's pacing.
      places: number of places.
      clock: returns the time in seconds; monotonic.
    """

    def __init__(self, pace: Pace, places: int, clock: Callable[[], float] = time.monotonic):
        self._items_per_step = pace.items_per_actor * places
        self._limit = self._items_per_step * (pace.max_policy_lag + 1)
        self._clock = clock
        self._begun: set[int] = set()
        """Places in the middle of a sequence."""
        self._written = 0
        """Sequences that are complete and have not been consumed."""
        self._version: Version | None = None
        self._helped = clock()

    def may_begin(self, version: Version) -> bool:
        """Returns whether weights of this version are new enough to begin another sequence in any place."""
        if self._version is None or version.incarnation != self._version.incarnation:
            # A restarted learner needs new data, regardless of what the previous incarnation received.
            self._written = 0
        else:
            consumed = self._items_per_step * (version.step - self._version.step)
            self._written = max(0, self._written - consumed)
        self._version = version
        return self._written + len(self._begun) < self._limit

    def may_help(self, short_of_data: float) -> bool:
        """Returns whether to begin an extra one, for a learner that waits for the sequences of slow simulators."""
        now = self._clock()
        if min(short_of_data, now - self._helped) < _PATIENCE_SECONDS:
            return False
        self._helped = now
        return True

    def begin(self, place: int) -> None:
        self._begun.add(place)

    def end(self, place: int) -> None:
        """Counts a sequence that is complete."""
        self._begun.discard(place)
        self._written += 1
        self._helped = self._clock()

    def rest(self, place: int) -> None:
        self._begun.discard(place)


class PlacePacer(Pacer):
    """The pacer of one place.

    Args:
      pace: the agent's pacing.
      index: index of the place.
      shared: the pacing of all places.
    """

    def __init__(self, pace: Pace, index: int, shared: SharedPace):
        super().__init__(pace, index)
        self._shared = shared

    def may_begin(self, version: Version) -> bool:
        return self._shared.may_begin(version)

    def may_help(self, short_of_data: float) -> bool:
        return self._shared.may_help(short_of_data)

    def begin(self) -> None:
        super().begin()
        self._shared.begin(self._index)

    def count_timestep(self) -> bool:
        is_complete = super().count_timestep()
        if is_complete:
            self._shared.end(self._index)
        else:
            self._shared.begin(self._index)
        return is_complete

    def rest(self) -> None:
        self._shared.rest(self._index)
