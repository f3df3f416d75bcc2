"""Putting together what several callers want at about the same time."""

import threading
import time
from concurrent.futures import Future
from typing import Any, NamedTuple


class Waiting(NamedTuple):
    """A request that waits for its batch."""

    request: Any
    result: "Future[Any]"


class Batcher:
    """Collects requests, and hands them out together.

    A batch waits for those callers that are expected back, and for no longer than the deadline after its first request.
    Whoever was given an answer is expected; whoever has called again, or cannot for the time being, is not.

    Args:
      deadline: seconds.
    """

    def __init__(self, deadline: float):
        self._deadline = deadline
        self._expected: set[int] = set()
        self._waiting: list[Waiting] = []
        self._since = 0.0
        self._changed = threading.Condition()

    def expect(self, caller: int) -> None:
        """The next batch shall wait for this caller."""
        with self._changed:
            self._expected.add(caller)

    def forget(self, caller: int) -> None:
        """No batch shall wait for this caller."""
        with self._changed:
            self._expected.discard(caller)
            self._changed.notify()

    def submit(self, caller: int, request: Any) -> "Future[Any]":
        """Adds a request to the next batch."""
        waiting = Waiting(request, Future())
        with self._changed:
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append(waiting)
            self._expected.discard(caller)
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
            return waiting
