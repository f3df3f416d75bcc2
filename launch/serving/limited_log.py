"""Bounds on how often something happens, and on what peers can write into the log."""

import logging
import threading
import time
from collections.abc import Callable

from ...errors import one_line


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


_LINES_A_SECOND = 0.2
_BURST = 20
_MOST_LETTERS = 400
_LOGGERS = ("", "asyncio", "py.warnings", *(f"aiohttp.{part}" for part in "access client internal server web".split()))


class LimitedLog(logging.Filter):
    """Limits what one thread logs, by whichever logger: few lines, which are short and without control characters.

    Args:
      clock: the clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self._rate = RateLimit(_LINES_A_SECOND, clock, _BURST)
        self._left_out = 0
        self._thread: int | None = None

    def __enter__(self) -> "LimitedLog":
        """Begins to limit what the calling thread logs."""
        self._thread = threading.get_ident()
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread:
            return True
        if not self._rate.allows():
            self._left_out += 1
            return False
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {one_line(record.exc_info[1])}"
        if record.name != "root":  # Tracebacks of a library show nothing but that a peer has sent nonsense.
            record.exc_info = None
        letters = (letter if letter.isprintable() else " " for letter in text[:_MOST_LETTERS])
        more = f" ({self._left_out} lines before it were left out)" if self._left_out else ""
        record.msg, record.args, self._left_out = f"{' '.join(''.join(letters).split())}{more}", (), 0
        return True
