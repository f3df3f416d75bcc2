"""Which replay shards have been waited for in vain just now."""

import time

from ...runtime.deadlines import Clock, Deadline

_SECONDS = 5.0


class AwayShards:
    """The shards for which sampling has waited in vain in the last 5 seconds, so that it does not wait for them twice.

    Args:
      clock: the clock; another one in tests.
    """

    def __init__(self, clock: Clock = time.monotonic):
        self._clock = clock
        self._until: dict[int, Deadline] = {}

    def add(self, shard: int) -> None:
        """Adds a shard for the next 5 seconds."""
        self._until[shard] = Deadline(_SECONDS, self._clock)

    def discard(self, shard: int) -> None:
        """Removes a shard that has answered."""
        self._until.pop(shard, None)

    def __contains__(self, shard: int) -> bool:
        until = self._until.get(shard)
        return until is not None and not until.has_passed
