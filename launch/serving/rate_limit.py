"""A bound on how often something happens."""

import time
from collections.abc import Callable


class RateLimit:
    """Allows events at a rate, and a burst of them at once (a token bucket).

    Args:
      per_second: the rate.
      clock: the clock.
      burst: the most at once; None for as many as in a second.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic, burst: float | None = None):
        self._per_second = per_second
        self._clock = clock
        self._burst = self._left = per_second if burst is None else burst
        self._at = clock()

    def allows(self) -> bool:
        """Returns whether the event may happen now, and counts it if so."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
