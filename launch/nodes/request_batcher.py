"""Putting together what several callers want at about the same time."""

import threading
import time
from concurrent.futures import Future
from typing import Any, NamedTuple


class Waiting(NamedTuple):
    """A request that waits for its batch."""

    caller: int
    request: Any
    result: "Future[Any]"


class RequestBatcher:
    """Collects requests, and hands them out together.

    Who was in a batch is expected back.  A batch waits for those that are expected, and for no longer than the deadline
    after its first request; who misses that is not waited for again before its next request.

    Args:
      deadline: seconds.
    """

    def __init__(self, deadline: float):
        self._deadline = deadline
        self._expected: set[int] = set()
        self._waiting: list[Waiting] = []
        self._since = 0.0
        self._changed = threading.Condition()

    def forget(self, caller: int) -> None:
        """No batch shall wait for this caller."""
        with self._changed:
            self._expected.discard(caller)
            if not self._expected:
                self._changed.notify()

    def submit(self, caller: int, request: Any) -> "Future[Any]":
        """Adds a request to the next batch."""
        waiting = Waiting(caller, request, Future())
        with self._changed:
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append(waiting)
            self._expected.discard(caller)
            # The others would wake the taker for nothing.
            if len(self._waiting) == 1 or not self._expected:
                self._changed.notify()
        return waiting.result

    def take(self, timeout: float) -> list[Waiting]:
        """The next batch; empty if there is no request within `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting, timeout):
                return []
            left = self._since + self._deadline - time.monotonic()
            self._changed.wait_for(lambda: not self._expected, max(0.0, left))
            waiting, self._waiting = self._waiting, []
            self._expected = {one.caller for one in waiting}
            return waiting
