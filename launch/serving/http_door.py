"""The HTTP interface of a policy server: access, limits, and the conversion of requests and answers."""

import asyncio
import contextlib
import logging
import re
import socket
import ssl
import threading
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from ... import __version__
from ...errors import CallboardError, one_line
from ..processes.listen_filter import PortGuard
from .access_token import is_token
from .episode_server import ANSWER_SECONDS, EpisodeServer, RefusedRequest, StepRequest
from .rate_limit import RateLimit
from .server_address import ServerAddress
from .wire_format import WireFormat, parse_body

STEP, STEPS, ACT, SPACES, HEALTH = "/v1/step", "/v1/steps", "/v1/act", "/v1/spaces", "/v1/health"
MOST_TOGETHER = 16
"""Timesteps in one request."""
_BINARY = "application/octet-stream"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_FIELDS = ("episode", "sequence", "observation", "reward", "terminated", "truncated", "action", "cut_off")
_BODY_SECONDS = 10.0
_START_SECONDS = 30.0
_FIRST_SECONDS = 20.0
"""Time in which a connection must have sent its first request with the token."""
_PAUSE_SECONDS = 0.1
_IDLE_SECONDS = 300.0
"""Time after which a connection without requests is closed."""
_CLOSE_SECONDS = 1.0
"""Time in which requests are still answered when the server closes."""
_REQUESTS_A_SECOND = 2000.0
"""Most requests of one connection; a burst may have as many."""
_WRONG_TOKENS_A_SECOND = 5.0
_FURTHER_CONNECTIONS = 32

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpDoor:
    """Serves an `EpisodeServer` over HTTP, in a thread of its own.

    Args:
      episodes: what acts.
      wire: converts observations and actions.
      address: where it listens; its port is closed to other machines if it is one of the loopback interface.
      token: the token that clients must send.
      tls: TLS settings; None for HTTP without encryption.
      places: the most episodes at a time; there may be a few more connections.
      chosen_actions: returns why clients may not choose actions themselves; empty if they may.
      health: returns what `/v1/health` shows.
      acts_once: whether `/v1/act` gives the action for a single observation, without an episode.
    """

    def __init__(
        self,
        episodes: EpisodeServer,
        wire: WireFormat,
        address: ServerAddress,
        token: str,
        tls: ssl.SSLContext | None,
        places: int,
        chosen_actions: Callable[[], str] = lambda: "",
        health: Callable[[], dict[str, Any]] = lambda: {},
        acts_once: bool = False,
    ):
        self._episodes = episodes
        self._wire = wire
        self._address = address
        self._token = token
        self._tls = tls
        self._most_connections = places + _FURTHER_CONNECTIONS
        self._refuses_actions = chosen_actions
        self._health = health
        self._acts_once = acts_once
        self._guard = PortGuard()
        self._wrong_tokens = RateLimit(_WRONG_TOKENS_A_SECOND)
        self._opening: set[asyncio.Task[None]] = set()
        """Connections whose TLS handshake has not ended."""
        self._limits: dict[Any, RateLimit] = {}
        """By the address and port of the other side; the newest."""
        self._loop = asyncio.new_event_loop()
        self._answered_requests: deque[asyncio.Future[None]] = deque()
        """Requests whose answers have not been sent yet; the serving thread appends to it."""
        episodes.when_answered = self._wake
        self._closed = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="policy-server", daemon=True)

    def start(self) -> None:
        """Begins to listen.

        Raises:
          CallboardError: the address cannot be used.
        """
        host, port = self._address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(self._most_connections)
        except OSError as error:
            listener.close()
            raise CallboardError(
                f"the policy server cannot listen at {host}:{port}: {error.strerror}; choose another address or port"
            ) from error
        if self._address.is_loopback:
            self._guard.close(port)
        self._listener = listener
        self._thread.start()
        self._started.wait(_START_SECONDS)

    def close(self) -> None:
        """Closes all connections; a second call does nothing."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._closed.set)
            self._thread.join(_START_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        application = web.Application(
            middlewares=[self._guarded], client_max_size=MOST_TOGETHER * self._wire.most_bytes
        )
        application.router.add_post(STEP, self._step)
        application.router.add_post(STEPS, self._steps)
        if self._acts_once:
            application.router.add_post(ACT, self._act)
        application.router.add_get(SPACES, self._spaces)
        application.router.add_get(HEALTH, self._show_health)
        # One line per request would fill the log.
        times: dict[str, Any] = {"keepalive_timeout": _IDLE_SECONDS, "shutdown_timeout": _CLOSE_SECONDS}
        runner = web.AppRunner(application, access_log=None, handle_signals=False, **times)
        await runner.setup()
        server = runner.server
        assert server is not None

        accepting = self._loop.create_task(self._accept(server))
        self._started.set()
        await self._closed.wait()
        accepting.cancel()
        self._listener.close()
        await runner.cleanup()

    async def _accept(self, server: web.Server) -> None:
        """Opens connections as they come, up to the most that there may be."""
        self._listener.setblocking(False)
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:  # There may be too many open files.
                logging.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if len(server.connections) + len(self._opening) >= self._most_connections:
                accepted.close()
                continue
            opening = self._loop.create_task(self._open(server, accepted))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    async def _open(self, server: web.Server, accepted: socket.socket) -> None:
        handshake = None if self._tls is None else _FIRST_SECONDS
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                server, accepted, ssl=self._tls, ssl_handshake_timeout=handshake
            )
        except (OSError, EOFError):  # The other side speaks no TLS, or has gone.
            accepted.close()
            return
        self._loop.call_later(_FIRST_SECONDS, self._close_without_token, transport)

    def _close_without_token(self, transport: asyncio.BaseTransport) -> None:
        """Closes a connection over which no request with the token has come: it keeps others out."""
        if transport.get_extra_info("peername") not in self._limits and isinstance(transport, asyncio.WriteTransport):
            transport.abort()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuses requests without the token and too many of them, and turns errors into answers."""
        try:
            if request.path != HEALTH:
                self._check_access(request)
            return await handler(request)
        except RefusedRequest as error:
            return _answer({"error": str(error), "code": error.code}, error.status)
        except CallboardError as error:
            return _answer({"error": str(error), "code": "bad_request"}, 400)
        except web.HTTPException as error:
            return _answer({"error": _reason(error, self._wire.most_bytes), "code": "bad_request"}, error.status)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            logging.exception("a request could not be answered")
            return _answer({"error": one_line(error), "code": "failed"}, 500)

    def _check_access(self, request: web.Request) -> None:
        if not is_token(request.headers.get("Authorization", ""), self._token):
            if not self._wrong_tokens.allows():
                raise RefusedRequest(429, "too_many", "too many requests had a wrong token: wait a second")
            raise RefusedRequest(401, "unauthorized", 'send the header "Authorization: Bearer TOKEN" with the token')
        transport = request.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        limit = self._limits.setdefault(peer, RateLimit(_REQUESTS_A_SECOND))
        while len(self._limits) > 2 * self._most_connections:
            del self._limits[next(iter(self._limits))]
        if not limit.allows():
            raise RefusedRequest(
                429, "too_many", f"more than {_REQUESTS_A_SECOND:g} requests a second over one connection: send fewer"
            )

    async def _step(self, request: web.Request) -> web.Response:
        fields, rest = await self._body(request)
        action = await self._answered(self._read(fields, rest))
        return _answer({} if action is None else {"action": self._wire.format_action(action)})

    async def _steps(self, request: web.Request) -> web.Response:
        """Takes timesteps of several episodes; what is wrong with one is its answer, unless it cannot be read."""
        fields, rest = await self._body(request, MOST_TOGETHER)
        steps = fields.get("steps")
        if list(fields) != ["steps"] or not isinstance(steps, list) or not 1 <= len(steps) <= MOST_TOGETHER:
            raise CallboardError(f'send {{"steps": [...]}} with 1 to {MOST_TOGETHER} timesteps, and nothing else')
        if not all(isinstance(one, dict) for one in steps):
            raise CallboardError("each of steps is an object with the fields of a timestep")
        read = [self._read(one, rest) for one in steps]
        if len({one.episode for one in read}) < len(read):
            raise CallboardError("steps has two timesteps of one episode: send one, and wait for its answer")
        answers = await asyncio.gather(*(self._answer_of(one) for one in read))
        return _answer({"answers": answers})

    async def _answer_of(self, request: StepRequest) -> dict[str, Any]:
        """Returns what a timestep is answered among others."""
        try:
            action = await self._answered(request)
        except RefusedRequest as error:
            return {"error": str(error), "code": error.code, "status": error.status}
        return {} if action is None else {"action": self._wire.format_action(action)}

    async def _act(self, request: web.Request) -> web.Response:
        fields, rest = await self._body(request)
        if list(fields) != ["observation"]:
            raise CallboardError('send {"observation": ...} and nothing else')
        name = f"once.{uuid.uuid4().hex}"
        action = await self._answered(StepRequest(name, 0, self._wire.observation(fields["observation"], rest)))
        self._episodes.submit(StepRequest(name, 1, None))
        return _answer({"action": self._wire.format_action(action)})

    async def _body(self, request: web.Request, timesteps: int = 1) -> tuple[dict[str, Any], memoryview]:
        most = timesteps * self._wire.most_bytes
        if (request.content_length or 0) > most:
            raise web.HTTPRequestEntityTooLarge(most, request.content_length or 0)
        if request.content.is_eof():  # As nearly always: the body has come with the headers.
            body = await request.read()
        else:
            body = await self._slow_body(request)
        if len(body) > most:
            raise web.HTTPRequestEntityTooLarge(most, len(body))
        return parse_body(body, request.content_type == _BINARY)

    async def _slow_body(self, request: web.Request) -> bytes:
        try:
            return await asyncio.wait_for(request.read(), _BODY_SECONDS)
        except asyncio.TimeoutError as error:
            raise RefusedRequest(408, "too_slow", f"the body took more than {_BODY_SECONDS:g} seconds") from error

    async def _answered(self, request: StepRequest) -> Any:
        """Returns the action for a timestep, or None at the end of an episode."""
        result = self._episodes.submit(request)
        answered = self._loop.create_future()
        result.add_done_callback(lambda _: self._answered_requests.append(answered))
        if not result.done():
            patience = self._loop.call_later(ANSWER_SECONDS, _give_up, answered)
            try:
                await answered
            finally:
                patience.cancel()
        return result.result()

    def _wake(self) -> None:
        """Has the answers of a batch sent, with one wake-up for all of them."""
        if self._answered_requests:
            with contextlib.suppress(RuntimeError):  # The loop has closed.
                self._loop.call_soon_threadsafe(self._send_answers)

    def _send_answers(self) -> None:
        while self._answered_requests:
            answered = self._answered_requests.popleft()
            if not answered.done():
                answered.set_result(None)

    def _read(self, fields: dict[str, Any], rest: memoryview) -> StepRequest:
        for name in fields:
            if name not in _FIELDS:
                raise CallboardError(f"unknown field {name[:64]!r}: the fields are {', '.join(_FIELDS)}")
        episode, sequence = fields.get("episode"), fields.get("sequence")
        if not isinstance(episode, str) or not _NAME.fullmatch(episode):
            raise CallboardError("episode must be a name of 1 to 64 letters, digits, dots, dashes and underscores")
        if type(sequence) is not int or not 0 <= sequence < 2**31:
            raise CallboardError("sequence must be the number of the timestep in the episode, from 0 on")
        flags = [fields.get(name, False) for name in ("terminated", "truncated", "cut_off")]
        if not all(isinstance(flag, bool) for flag in flags):
            raise CallboardError("terminated, truncated and cut_off must be true or false")
        terminated, truncated, cut_off = flags
        reward = fields.get("reward", 0.0)
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not abs(reward) < 3e38:
            raise CallboardError("reward must be a finite number")
        chosen = fields.get("action")
        if chosen is not None and (reason := self._refuses_actions()):
            raise CallboardError(reason)
        if cut_off:
            return StepRequest(episode, sequence, None)
        if "observation" not in fields:
            raise CallboardError("every timestep needs an observation, also the last one; or give cut_off")
        return StepRequest(
            episode,
            sequence,
            self._wire.observation(fields["observation"], rest),
            float(reward),
            terminated,
            truncated,
            None if chosen is None else self._wire.action(chosen, rest),
        )

    async def _spaces(self, request: web.Request) -> web.Response:
        return _answer(self._wire.spaces)

    async def _show_health(self, request: web.Request) -> web.Response:
        return _answer({"status": "ok", "version": __version__, **self._health()})


def _give_up(answered: "asyncio.Future[None]") -> None:
    if not answered.done():
        answered.set_exception(
            RefusedRequest(503, "wait", "the learner or replay is not ready: send the same request again")
        )


def _answer(content: dict[str, Any], status: int = 200) -> web.Response:
    return web.json_response(content, status=status)


def _reason(error: web.HTTPException, most_bytes: int) -> str:
    if error.status == 413:
        return f"a timestep has more than {most_bytes} bytes, the most for these spaces: send arrays as base64 or raw"
    if error.status == 404:
        return f"there are {STEP}, {STEPS}, {SPACES} and {HEALTH}"
    if error.status == 405:
        return f"send {STEP} and {STEPS} with POST, {SPACES} and {HEALTH} with GET"
    return error.reason
