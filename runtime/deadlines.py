"""Waiting with a deadline.

This module is at the lowest level because both `replay` and `launch` wait.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

Clock = Callable[[], float]
"""Returns monotonic time in seconds."""
_Result = TypeVar("_Result")


class Deadline:
    """A moment some seconds after it was made or restarted; also a timer for what is due at intervals.

    Args:
      seconds: time until the deadline; `math.inf` for none.
      clock: the clock; another one in tests.
    """

    def __init__(self, seconds: float, clock: Clock = time.monotonic):
        self._seconds = seconds
        self._clock = clock
        self.restart()

    def restart(self, seconds: float | None = None) -> None:
        """Moves the deadline to the same time from now, or to `seconds` from now on."""
        if seconds is not None:
            self._seconds = seconds
        self._at = self._clock() + self._seconds

    @property
    def left(self) -> float:
        """Seconds until the deadline; 0 once it has passed."""
        return max(0.0, self._at - self._clock())

    @property
    def has_passed(self) -> bool:
        return self._clock() >= self._at


def wait_until(
    condition: Callable[[], object],
    timeout: float,
    interval: float = 0.1,
    sleep: Callable[[float], Any] = time.sleep,
    clock: Clock = time.monotonic,
) -> bool:
    """Waits until a condition holds.

    Args:
      condition: called at once, and then after every interval until it returns something true.
      timeout: maximum time to wait, in seconds.
      interval: seconds between two calls.
      sleep: waits for so many seconds; the `wait` of an event ends the interval early.
      clock: the clock; another one in tests.

    Returns:
      Whether the condition holds.
    """
    deadline = Deadline(timeout, clock)
    while not condition():
        if deadline.has_passed:
            return False
        sleep(min(interval, deadline.left))
    return True


def retry(
    call: Callable[[], _Result],
    errors: type[Exception] | tuple[type[Exception], ...],
    timeout: float,
    interval: float = 0.2,
    sleep: Callable[[float], Any] = time.sleep,
    clock: Clock = time.monotonic,
) -> _Result:
    """Repeats a call until it succeeds.

    Args:
      call: the call.
      errors: the exceptions after which it is repeated.
      timeout: time after which it is not repeated, in seconds.
      interval: seconds between the end of a call and the next one.
      sleep: waits for so many seconds.
      clock: the clock; another one in tests.

    Returns:
      What the call returns.

    Raises:
      Exception: the error of the last call.
    """
    deadline = Deadline(timeout, clock)
    while True:
        try:
            return call()
        except errors:
            if deadline.has_passed:
                raise
        sleep(min(interval, deadline.left))
