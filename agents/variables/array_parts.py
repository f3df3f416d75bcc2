"""Transfer of large arrays in parts, so that a link of any speed makes progress in the time that a call may take."""

import time
from collections.abc import Callable

import numpy as np

from ...runtime.deadlines import Clock

WHOLE_BYTES = 1 << 20
"""Arrays up to this size take one call; they come in parts, too, where a call does not suffice for them."""
_SMALLEST_PART = 1 << 12
_LARGEST_PART = 1 << 23
_QUICK_SECONDS = 0.5


class ArrayParts:
    """Receives arrays in parts.  A transfer that is cut continues where it was.

    Parts become smaller after a call that was cut, and larger after one that was quick.

    Args:
      clock: returns seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._resize(WHOLE_BYTES)
        self._buffer = np.zeros(0, np.uint8)
        self._received = 0
        self._begun = self._took = 0.0

    @property
    def total(self) -> int:
        """Size of the array that is being received, or was received last."""
        return len(self._buffer)

    @property
    def seconds(self) -> float:
        """Seconds that the last transfer took, or those that the current one will take in all at its present rate."""
        if self._took or not self._received:
            return self._took
        return (self._clock() - self._begun) * self.total / self._received

    def begin(self, total: int) -> None:
        """Begins to receive an array of `total` bytes."""
        self._buffer = np.empty(total, np.uint8)
        self._received, self._took, self._begun = 0, 0.0, self._clock()

    def receive(self, get: Callable[[int, int], np.ndarray | None], proceed: Callable[[], bool]) -> np.ndarray | None:
        """Receives the rest of the array.

        Args:
          get: returns the bytes at an offset, at most so many; None if the sender has them no more.
          proceed: called after every part; the transfer rests when it returns False.

        Returns:
          The array; an empty one if the transfer rests, and None if the sender has the array no more.
        """
        while self._received < self.total:
            asked = self._clock()
            part = get(self._received, self._part_bytes)
            if part is None:
                return None
            self._buffer[self._received : self._received + len(part)] = part
            self._received += len(part)
            if self._clock() - asked < _QUICK_SECONDS:
                self._resize(min(2 * self._part_bytes, _LARGEST_PART))
            if self._received < self.total and not proceed():
                break
        if self._received < self.total:
            return self._buffer[:0]
        self._took = self._clock() - self._begun
        proceed()
        return self._buffer

    def shrink(self) -> None:
        """Makes the next parts smaller, after a call that was cut."""
        self._resize(max(self._part_bytes // 2, _SMALLEST_PART))

    def _resize(self, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self.whole_bytes = min(part_bytes, WHOLE_BYTES)
        """Size up to which an array can be sent whole, as far as is known."""
