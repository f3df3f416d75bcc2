"""Progress of a run over time: how fast it is, how long it will still take, and whether the return rises."""

import collections
import math
import statistics

_POINTS = 240
_NOTICEABLE = 0.05
"""Smallest change, as a fraction of the return, that counts as a trend."""


def time_left(remaining: float, done: float, seconds: float) -> float | None:
    """Returns the seconds until the rest is done; None if nothing was done of it.

    Args:
      remaining: what is still to be done.
      done: what was done lately.
      seconds: the time that this took.
    """
    if remaining <= 0:
        return 0.0
    return remaining * seconds / done if done > 0 else None


class Trend:
    """Whether a value rises or falls: the newer half of its last values against the older half."""

    def __init__(self) -> None:
        self._values: collections.deque[float] = collections.deque(maxlen=_POINTS)

    def update(self, value: float) -> str:
        """Takes a new value, and returns an arrow: ↗, ↘ or →; empty for less than four values or NaN.

        A value that equals the last one is not counted, since displays receive every value several times.
        """
        if math.isnan(value):
            return ""
        if not self._values or value != self._values[-1]:
            self._values.append(value)
        values = list(self._values)
        if len(values) < 4:
            return ""
        middle = len(values) // 2
        older, newer = statistics.fmean(values[:middle]), statistics.fmean(values[middle:])
        if abs(newer - older) < _NOTICEABLE * max(abs(older), abs(newer)):
            return "→"
        return "↗" if newer > older else "↘"


def rate(per_second: float) -> str:
    """Returns steps per second: `4,021`, below 100 with a decimal, and below 0.1 with two digits, as slow ones need."""
    if 0.0 < per_second < 0.095:
        return f"{per_second:.2g}"
    return f"{per_second:,.{1 if per_second < 99.95 else 0}f}"


def duration(seconds: float) -> str:
    """Returns a duration in words, with one or two units: `45 s`, `3 min`, `2 h 05 min`, `3 d 4 h`."""
    seconds = max(0, round(seconds))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    if seconds < 2 * 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    return f"{seconds // 86400} d {seconds % 86400 // 3600} h"
