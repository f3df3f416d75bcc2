"""Dynamic batching of concurrent requests."""

import threading
import time
from concurrent.futures import Future
from typing import Any, NamedTuple


class Waiting(NamedTuple):
    """A request that waits for its batch, and the future of its result."""

    caller: int
    request: Any
    result: "Future[Any]"


class RequestBatcher:
    """Collects requests and returns them in batches.

    The callers of a batch are expected in the next one.  A batch waits for all expected callers, but at most until the
    deadline after its first request.  A caller that misses the deadline is not expected again until its next request.

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
        """Stops batches from waiting for this caller."""
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
            # Other requests would wake the consumer for nothing.
            if len(self._waiting) == 1 or not self._expected:
                self._changed.notify()
        return waiting.result

    def take(self, timeout: float) -> list[Waiting]:
        """Returns the next batch; empty if no request arrives within `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting, timeout):
                return []
            left = self._since + self._deadline - time.monotonic()
            self._changed.wait_for(lambda: not self._expected, max(0.0, left))
            waiting, self._waiting = self._waiting, []
            self._expected = {one.caller for one in waiting}
            return waiting
