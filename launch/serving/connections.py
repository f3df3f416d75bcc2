"""The connections of a policy server: who may stay, and for how long."""

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

from ...runtime.deadlines import Clock
from .limited_log import RateLimit

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler

FIRST_SECONDS = 20.0
"""Time in which a connection must have sent its first request with the token."""
CROWDED_SECONDS = 2.0
"""The same while more than three quarters of the connections are open that there may be."""
_HEAD_SECONDS = 20.0
"""Time in which the head of a further request must have come, once it has begun."""
_ANSWER_SECONDS = 60.0
"""Time in which a request must have been read and answered."""
_UNREAD_SECONDS = 20.0
"""Time for which a peer may leave unread what it has been sent."""
_REQUESTS_A_SECOND = 2000.0
"""Most requests of one connection; a burst may have as many."""


class Connection(asyncio.Protocol):
    """A connection: passes data on to the HTTP protocol, and enforces the peer's timeouts.

    Args:
      host: the peer's address.
      http: the HTTP protocol.
      connections: the others.
    """

    def __init__(self, host: str, http: "RequestHandler", connections: "Connections"):
        self.host = host
        self.http = http
        self.has_token = False
        """Whether it has had a request with the token."""
        self.limit = RateLimit(_REQUESTS_A_SECOND)
        self.opening: asyncio.Task[None] | None = None
        """Opens it, with its TLS handshake."""
        self.transport: asyncio.Transport | None = None
        self.opened = connections.clock()
        self._connections = connections
        self._deadline: float | None = None
        self._unread_deadline: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._deadline is None:
            self._deadline = self._connections.clock() + _HEAD_SECONDS
        self.http.data_received(data)

    def eof_received(self) -> None:
        self.http.eof_received()

    def pause_writing(self) -> None:
        self._unread_deadline = self._connections.clock() + _UNREAD_SECONDS
        self.http.pause_writing()

    def resume_writing(self) -> None:
        self._unread_deadline = None
        self.http.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.forget(self)
        self.http.connection_lost(error)

    def begin_request(self) -> None:
        """Takes notice that the head of a request has come."""
        self._deadline = self._connections.clock() + _ANSWER_SECONDS

    def end_request(self) -> None:
        self._deadline = None

    def is_overdue(self, now: float, first_seconds: float) -> bool:
        deadlines = [self._deadline, self._unread_deadline, None if self.has_token else self.opened + first_seconds]
        return any(deadline is not None and now > deadline for deadline in deadlines)

    def close(self) -> None:
        self._connections.forget(self)
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()


class Connections:
    """All connections of a policy server.

    Args:
      most: the most that may be open.
      clock: the clock.
    """

    def __init__(self, most: int, clock: Clock = time.monotonic):
        self._most = most
        self.clock = clock
        self._open: dict[RequestHandler, Connection] = {}
        """By their HTTP protocol; the oldest first."""

    def __len__(self) -> int:
        return len(self._open)

    def of(self, http: "RequestHandler") -> Connection | None:
        """Returns the connection of a request's protocol; None if it has been closed."""
        return self._open.get(http)

    def make_room(self) -> bool:
        """Returns whether another connection may be opened.

        If there are too many, one without the token is closed: the oldest of the address that has most of those.  One
        that has shown the token is not closed for others.
        """
        if len(self._open) < self._most:
            return True
        strangers = [one for one in self._open.values() if not one.has_token]
        if not strangers:
            return False
        numbers = Counter(one.host for one in strangers)
        most = max(numbers.values())
        next(one for one in strangers if numbers[one.host] == most).close()
        return True

    def add(self, connection: Connection) -> None:
        self._open[connection.http] = connection

    def forget(self, connection: Connection) -> None:
        self._open.pop(connection.http, None)

    def close_overdue(self) -> None:
        """Closes connections that have taken too long."""
        now, is_crowded = self.clock(), 4 * len(self._open) > 3 * self._most
        for connection in list(self._open.values()):
            if connection.is_overdue(now, CROWDED_SECONDS if is_crowded else FIRST_SECONDS):
                connection.close()
