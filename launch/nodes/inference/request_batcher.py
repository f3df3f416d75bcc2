"""Dynamic batching of concurrent requests."""

import threading
import time
from concurrent.futures import Future
from typing import Any, NamedTuple


class PendingRequest(NamedTuple):
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
        self._pending: list[PendingRequest] = []
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
        pending = PendingRequest(caller, request, Future())
        with self._changed:
            if not self._pending:
                self._since = time.monotonic()
            self._pending.append(pending)
            self._expected.discard(caller)
            # Other requests would wake the consumer for nothing.
            if len(self._pending) == 1 or not self._expected:
                self._changed.notify()
        return pending.result

    def next_batch(self, timeout: float) -> list[PendingRequest]:
        """Returns the next batch; empty if no request arrives within `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._pending, timeout):
                return []
            left = self._since + self._deadline - time.monotonic()
            self._changed.wait_for(lambda: not self._expected, max(0.0, left))
            batch, self._pending = self._pending, []
            self._expected = {pending.caller for pending in batch}
            return batch
