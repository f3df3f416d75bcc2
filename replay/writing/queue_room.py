"""When a queue has room for what an actor is about to make."""

import time
from typing import Literal

import reverb

from ..servers.handle import flushed

_PROMPT_SECONDS = 0.003
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _PAUSE_GROWTH = 0.002, 0.25, 1.2
_LOOKS_PER_WAIT = 4
"""The first pause is this part of the previous wait, so that many actors look about as often together as a few."""
_TAKEN_AT_ONCE = 10
"""Items in a row that the learner has taken from the queue at once, after which it counts as the faster side."""


class QueueRoom:
    """Lets an actor begin another item only when the queue has room for it, if the learner is the slower side.

    What is made earlier waits in front of a full queue while the learner makes its steps: with one item to a batch,
    each actor that does so makes the weights behind all data one learner step older.

    To look takes two messages.  While the queue takes items as fast as they come, no actor looks, and one may be
    on its way while it makes the next.

    Args:
      client: client of the server that has the queue.
      table: the queue's name.
    """

    def __init__(self, client: reverb.Client, table: str):
        self._client = client
        self._table = table
        self._fills = False
        self._taken_at_once = 0
        self._was_full = False
        self._waits_since: float | None = None
        self._last_wait_seconds = 0.0
        self._pause_seconds = 0.0
        self._next_look = 0.0

    def wait(self, writer: reverb.TrajectoryWriter, timeout: float) -> bool:
        """Waits up to `timeout` seconds, and returns whether there is room for another item of this writer."""
        if not self._fills:
            if flushed(writer, min(timeout, _PROMPT_SECONDS), max_pending=1):
                return True
            if self._room():
                # Large items take a while to be sent.
                return flushed(writer, timeout, max_pending=1)
            self._fills, self._taken_at_once = True, 0
        until = time.monotonic() + timeout
        if not flushed(writer, timeout, max_pending=0):
            self._was_full = True
            return False
        return self._wait_for_room(until)

    def take_was_full(self) -> bool:
        """Returns whether the queue was full before the newest `wait`; once for each time."""
        was_full, self._was_full = self._was_full, False
        return was_full

    def _wait_for_room(self, until: float) -> bool:
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = self._next_look = now
            self._pause_seconds = max(_SHORTEST_PAUSE_SECONDS, self._last_wait_seconds / _LOOKS_PER_WAIT)
        while self._next_look <= until:
            time.sleep(max(0.0, self._next_look - now))
            room, now = self._room(), time.monotonic()
            if room:
                self._has_found_room(room, now - self._waits_since)
                return True
            self._was_full, self._taken_at_once = True, 0
            self._pause_seconds = min(self._pause_seconds, _LONGEST_PAUSE_SECONDS)
            self._next_look = now + self._pause_seconds
            self._pause_seconds *= _PAUSE_GROWTH
        time.sleep(max(0.0, until - now))
        return False

    def _has_found_room(self, room: Literal["some", "all"], seconds: float) -> None:
        self._waits_since, self._last_wait_seconds = None, seconds
        self._taken_at_once = self._taken_at_once + 1 if room == "all" else 0
        self._fills = self._taken_at_once < _TAKEN_AT_ONCE

    def _room(self) -> Literal["", "some", "all"]:
        try:
            table = self._client.server_info(timeout=1)[self._table]
        except (reverb.errors.ReverbError, RuntimeError):  # No server answers; one that ends raises the latter.
            return ""
        if table.current_size == 0:
            return "all"
        # A table that replaces its oldest items has no limit on inserts.
        has_room = table.current_size < table.max_size or table.rate_limiter_info.max_diff > table.max_size
        return "some" if has_room else ""
