"""The actors that are there, in a run in which they come and go, and the fewest that it needs."""

from collections.abc import Callable

from ....deadlines import Clock, Deadline
from ....errors import counted
from ...node_names import kind_of

_SILENT_SECONDS = 30.0
"""Time without a report after which an actor is not there; then its lease is given to others, too."""
_START_SECONDS = 15.0
"""Time for the first actors to start before the user is told that the run waits for them."""


class ActorQuorum:
    """Counts the actors that report.  Not thread-safe: called under the coordinator's lock.

    Args:
      least: number of actors below which the run waits; None if their number is fixed.
      notify: receives a line when the run begins to wait, and when it continues.
      clock: the clock; another one in tests.
    """

    def __init__(self, least: int | None, notify: Callable[[str], None], clock: Clock):
        self._least = least or 0
        self._notify = notify
        self._clock = clock
        self._heard: dict[str, float] = {}
        """When each actor reported last, in the order of these times."""
        self._start = Deadline(_START_SECONDS, clock)
        self._waits = False

    @property
    def counts(self) -> bool:
        """Whether actors come and go."""
        return bool(self._least)

    @property
    def present(self) -> int:
        """Number of actors that have reported lately."""
        while self._heard and self._clock() - next(iter(self._heard.values())) > _SILENT_SECONDS:
            del self._heard[next(iter(self._heard))]
        return len(self._heard)

    def hear(self, node: str) -> None:
        """Takes that a node has reported."""
        if self.counts and kind_of(node) == "actor":
            self._heard.pop(node, None)
            self._heard[node] = self._clock()

    def suffices(self) -> bool:
        """Returns whether there are enough actors, and notifies the user when that changes."""
        if not self.counts:
            return True
        present = self.present
        waits = present < self._least
        if waits and not self._waits and self._start.has_passed:
            self._waits = True
            self._notify(f"waits for actors: {present} of at least {self._least} are there")
        elif self._waits and not waits:
            self._waits = False
            self._notify(f"continues, with {counted(present, 'actor')}")
        return not waits
