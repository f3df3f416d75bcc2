"""The HTTP interface of a policy server: access, limits, and the conversion of requests and answers."""

import asyncio
import concurrent.futures
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

from .... import __version__
from ....errors import CallboardError, one_line, printable, shortened
from ...processes.listen_filter import PortGuard
from ...serving.access_token import is_token
from ...serving.connections import FIRST_SECONDS, Connection, Connections
from ...serving.limited_log import LimitedLog, RateLimit
from ...serving.server_address import ServerAddress, bind
from ...serving.wire_format import WireFormat, parse_body
from .episode_server import ANSWER_SECONDS, EpisodeServer, RefusedRequest, StepRequest

STEP, STEPS, ACT, SPACES, HEALTH = "/v1/step", "/v1/steps", "/v1/act", "/v1/spaces", "/v1/health"
MOST_TOGETHER = 16
"""Timesteps in one request."""
_BINARY = "application/octet-stream"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_FIELDS = ("episode", "sequence", "observation", "reward", "terminated", "truncated", "action", "cut_off")
_BODY_SECONDS = 10.0
_START_SECONDS = 30.0
_LOOK_SECONDS = 0.25
_PAUSE_SECONDS = 0.1
_IDLE_SECONDS = 300.0
"""Time after which a connection without requests is closed."""
_CLOSE_SECONDS = 1.0
"""Time in which requests are still answered when the server closes."""
_WRONG_TOKENS_A_SECOND = 5.0
_FURTHER_CONNECTIONS = 32
_BIG = 2**14
"""Bytes of a body from which on it is converted in another thread, while the event loop answers others."""
_MOST_REASON = 200
"""Letters of the reason for which a request is refused that is not HTTP."""
_MOST_REWARD = 1e10
"""Larger rewards, squared and summed in a loss, would not be finite in float32."""
_EXAMPLES = {
    STEP: '{"episode": "a1", "sequence": 0, "observation": ...}',
    STEPS: '{"steps": [...]}',
    ACT: '{"observation": ...}',
}
_CODES = {404: "unknown_path", 405: "wrong_method", 413: "too_large"}

_logger = logging.getLogger()
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _JsonErrors(web.RequestHandler):
    """A connection whose errors are JSON as well if aiohttp itself refuses a request."""

    __slots__ = ()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.Response) and resp.status >= 400 and resp.content_type != "application/json":
            text = printable(shortened(" ".join((resp.text or "").split()), _MOST_REASON))
            closes, status = resp.keep_alive is False, resp.status
            resp = _answer({"error": text, "code": _CODES.get(status, "bad_request")}, status)
            if closes:
                resp.force_close()
        return await super().finish_response(request, resp, start_time)


class HttpDoor:
    """Serves an `EpisodeServer` over HTTP, in a thread of its own.

    Args:
      episodes: what acts.
      wire: converts observations and actions.
      address: where it listens; its port is closed to other machines if it is one of the loopback interface.
      token: the token that clients must send.
      tls: TLS settings; None for HTTP without encryption.
      places: the most episodes at a time; there may be a few more connections.
      refusal: why clients may not choose actions themselves; empty if they may.
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
        refusal: str = "",
        health: Callable[[], dict[str, Any]] = lambda: {},
        acts_once: bool = False,
    ):
        self._episodes = episodes
        self._wire = wire
        self._address = address
        self._token = token
        self._tls = tls
        self._most_connections = places + _FURTHER_CONNECTIONS
        self._connections = Connections(self._most_connections)
        self._refusal = refusal
        self._health = health
        self._acts_once = acts_once
        self._guard = PortGuard()
        self._wrong_tokens = RateLimit(_WRONG_TOKENS_A_SECOND)
        self._worker = concurrent.futures.ThreadPoolExecutor(1, "policy-server-bodies")
        self._loop = asyncio.new_event_loop()
        self._answered_requests: deque[asyncio.Future[None]] = deque()
        """Requests whose answers have not been sent yet; the serving thread appends to it."""
        episodes.when_answered = self._wake
        self._closed = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="policy-server", daemon=True)

    def start(self, bound: socket.socket | None = None) -> None:
        """Begins to listen.

        Args:
          bound: a socket that has the address already; None for a new one.

        Raises:
          CallboardError: the address cannot be used.
        """
        listener = bind(self._address) if bound is None else bound
        try:
            listener.listen(self._most_connections)
        except OSError as error:
            listener.close()
            raise CallboardError(
                f"the policy server cannot listen at {self._address.host}:{self._address.port}: {error.strerror}; "
                "choose another address or port"
            ) from error
        if self._address.is_loopback:
            self._guard.close(self._address.port)
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
            with LimitedLog():
                self._loop.run_until_complete(self._serve())
        finally:
            self._worker.shutdown(wait=False)
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
        runner = web.AppRunner(application, handle_signals=False, shutdown_timeout=_CLOSE_SECONDS)
        await runner.setup()
        server = runner.server
        assert server is not None

        tasks = [self._loop.create_task(self._accept(server)), self._loop.create_task(self._watch())]
        self._started.set()
        await self._closed.wait()
        for task in tasks:
            task.cancel()
        self._listener.close()
        await runner.cleanup()

    async def _accept(self, server: web.Server) -> None:
        """Opens connections as they come, up to the most that there may be."""
        self._listener.setblocking(False)
        while True:
            try:
                accepted, (host, *_) = await self._loop.sock_accept(self._listener)
            except OSError as error:  # There may be too many open files.
                _logger.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if self._connections.make_room():
                # One line per request would fill the log.
                times: dict[str, Any] = {"access_log": None, "keepalive_timeout": _IDLE_SECONDS}
                http = _JsonErrors(server, loop=self._loop, **times)
                connection = Connection(host, http, self._connections)
                self._connections.add(connection)
                connection.opening = self._loop.create_task(self._open(connection, accepted))
            else:
                accepted.close()
            # Requests of others are read between two connections, also where peers connect without a pause.
            await asyncio.sleep(0)

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        handshake = None if self._tls is None else FIRST_SECONDS
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=handshake
            )
        except (OSError, EOFError):  # The other side speaks no TLS, or has gone.
            pass
        finally:
            if connection.transport is None:
                self._connections.forget(connection)
                accepted.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._connections.close_overdue()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuses requests without the token and too many of them, and turns errors into answers."""
        connection = self._connections.of(request.protocol)
        if connection is None:
            raise ConnectionResetError
        connection.begin_request()
        status, code = 400, "bad_request"
        try:
            self._check_access(request, connection)
            return await handler(request)
        except RefusedRequest as error:
            return _answer({"error": str(error), "code": error.code}, error.status)
        except CallboardError as error:
            text = str(error)
        except RecursionError:
            text = "the body is too deeply nested"
        except web.RequestPayloadError as error:
            text = f"the body cannot be read: {one_line(error)}"
        except web.HTTPException as error:
            status, code = error.status, _CODES.get(error.status, code)
            text = self._reason(error)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            _logger.exception("a request could not be answered")
            return _answer({"error": one_line(error), "code": "failed"}, 500)
        finally:
            connection.end_request()
        if connection.has_token:
            _logger.warning("a request of %s was refused: %s", connection.host, text)
        return _answer({"error": text, "code": code}, status)

    def _check_access(self, request: web.Request, connection: Connection) -> None:
        if not connection.limit.allows():
            raise RefusedRequest(429, "too_many", "too many requests a second over one connection: send fewer")
        given = request.headers.get("Authorization")
        if given is not None and is_token(given, self._token):
            connection.has_token = True
        elif given is not None or request.path != HEALTH:
            if not self._wrong_tokens.allows():
                raise RefusedRequest(429, "too_many", "too many requests had a wrong token: wait a second")
            problem = 'send the header "Authorization: Bearer TOKEN" with the token'
            if (given or "").lower().startswith("bearer "):
                problem = "the token is wrong: send the one that the server has shown, or that is in its token file"
            raise RefusedRequest(401, "unauthorized", problem)

    async def _step(self, request: web.Request) -> web.Response:
        action = await self._answered(await self._converted(request, self._read))
        return _answer({} if action is None else {"action": self._wire.format_action(action)})

    async def _steps(self, request: web.Request) -> web.Response:
        """Takes timesteps of several episodes; what is wrong with one is its answer, unless it cannot be read."""
        read = await self._converted(request, self._read_together, MOST_TOGETHER)
        answers = await asyncio.gather(*(self._answer_of(one) for one in read))
        return _answer({"answers": answers})

    async def _answer_of(self, request: StepRequest) -> dict[str, Any]:
        """Answers one of several timesteps."""
        try:
            action = await self._answered(request)
        except RefusedRequest as error:
            return {"error": str(error), "code": error.code, "status": error.status}
        return {} if action is None else {"action": self._wire.format_action(action)}

    async def _act(self, request: web.Request) -> web.Response:
        name = f"once.{uuid.uuid4().hex}"
        observation = await self._converted(request, self._read_observation)
        action = await self._answered(StepRequest(name, 0, observation))
        self._episodes.submit(StepRequest(name, 1, None))
        return _answer({"action": self._wire.format_action(action)})

    async def _converted(
        self, request: web.Request, read: Callable[[dict[str, Any], memoryview], Any], timesteps: int = 1
    ) -> Any:
        """Reads the body of a request with a function, and returns its result."""
        most = timesteps * self._wire.most_bytes
        if (request.content_length or 0) > most:
            raise web.HTTPRequestEntityTooLarge(most, request.content_length or 0)
        if request.content.is_eof():  # As nearly always: the body has come with the headers.
            body = await request.read()
        else:
            body = await self._slow_body(request)
        if len(body) > most:
            raise web.HTTPRequestEntityTooLarge(most, len(body))
        # Without the header, or with nonsense in it, HTTP's own default would be bytes.
        is_binary = request.headers.get("Content-Type", "").partition(";")[0].strip().lower() == _BINARY
        example = _EXAMPLES[request.path]

        def convert() -> Any:
            return read(*parse_body(body, is_binary, example))

        return convert() if len(body) < _BIG else await self._loop.run_in_executor(self._worker, convert)

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

    def _read_observation(self, fields: dict[str, Any], rest: memoryview) -> Any:
        if list(fields) != ["observation"]:
            raise CallboardError('send {"observation": ...} and nothing else')
        return self._wire.observation(fields["observation"], rest)

    def _read_together(self, fields: dict[str, Any], rest: memoryview) -> list[StepRequest]:
        steps = fields.get("steps")
        if list(fields) != ["steps"] or not isinstance(steps, list) or not 1 <= len(steps) <= MOST_TOGETHER:
            raise CallboardError(f'send {{"steps": [...]}} with 1 to {MOST_TOGETHER} timesteps, and nothing else')
        if not all(isinstance(one, dict) for one in steps):
            raise CallboardError("each of steps is an object with the fields of a timestep")
        read = [self._read(one, rest) for one in steps]
        if len({one.episode for one in read}) < len(read):
            raise CallboardError("steps has two timesteps of one episode: send one, and wait for its answer")
        return read

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
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not abs(reward) <= _MOST_REWARD:
            raise CallboardError(
                f"the reward of episode {episode!r} must be a number from {-_MOST_REWARD:g} to {_MOST_REWARD:g}, the "
                "most that can be learned from"
            )
        chosen = fields.get("action")
        if chosen is not None and self._refusal:
            raise CallboardError(self._refusal)
        if cut_off:
            return StepRequest(episode, sequence, None)
        if sequence and "reward" not in fields:
            raise CallboardError("every timestep after the first needs the reward of the action before: send reward")
        if not sequence and reward:
            raise CallboardError("timestep 0 has no reward, since no action was before it: leave reward out")
        if "observation" not in fields:
            raise CallboardError("every timestep needs an observation, also the last one; or give cut_off")
        ends = terminated or truncated
        observation = self._wire.observation(fields["observation"], rest, last=ends)
        if chosen is not None:
            chosen = self._wire.action(chosen, rest, None if ends else observation)
        return StepRequest(episode, sequence, observation, float(reward), terminated, truncated, chosen)

    async def _spaces(self, request: web.Request) -> web.Response:
        return _answer(self._wire.spaces)

    async def _show_health(self, request: web.Request) -> web.Response:
        """Shows that the server works; what it serves, to those who have the token."""
        shown = {"version": __version__, **self._health()} if "Authorization" in request.headers else {}
        return _answer({"status": "ok", **shown})

    def _reason(self, error: web.HTTPException) -> str:
        if error.status == 413:
            most = self._wire.most_bytes
            return f"a timestep has more than {most} bytes, the most for these spaces: send arrays as base64 or raw"
        posted = [STEP, STEPS, *([ACT] if self._acts_once else [])]
        if error.status == 404:
            once = "" if self._acts_once else f"; {ACT} is there with callboard serve only"
            return f"there are {', '.join(posted)}, {SPACES} and {HEALTH}{once}"
        if error.status == 405:
            return f"send {', '.join(posted)} with POST, {SPACES} and {HEALTH} with GET"
        return error.reason


def _give_up(answered: "asyncio.Future[None]") -> None:
    if not answered.done():
        answered.set_exception(
            RefusedRequest(503, "wait", "the learner or replay is not ready: send the same request again")
        )


def _answer(content: dict[str, Any], status: int = 200) -> web.Response:
    return web.json_response(content, status=status)
