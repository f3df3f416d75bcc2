"""Clients of the Ray actors: the interfaces of weights and replay, and non-blocking calls."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import ray
from ray import exceptions

from ....agents.weights import Snapshot
from ....data import Layout
from ....errors import CallboardError
from ....replay import ReplayHandle
from ...experiment import Experiment

CALL_SECONDS = 5.0
REPORT_SECONDS = 0.2
_START_SECONDS = 300.0
_RETRY_SECONDS = 0.2
_TELL_SECONDS = 60.0
_LOOKUP_SECONDS = 0.25

Answer = TypeVar("Answer")

UNREACHABLE = (exceptions.ActorUnavailableError, exceptions.GetTimeoutError, exceptions.ObjectLostError)
"""Raised by a call while its actor is being restarted; an actor that is dead for good raises `ActorDiedError`."""


class Parts(NamedTuple):
    """All that a task needs.  Any field may be replaced by a custom implementation."""

    experiment: Experiment
    layout: Layout
    """Traced: includes the specs of records and state."""
    weights: Any
    """Handle of a `ParameterServer`."""
    replay: tuple[Any, ...]
    """Handles of a `ReplayServer` for each shard."""
    progress: Any
    """Handle of a `Progress`."""


class RemoteWeights:
    """The weights of a `ParameterServer`, as a `WeightSource` for `WeightClient`.

    Args:
      server: handle of the Ray actor.
      timeout: seconds after which a call raises one of `UNREACHABLE`.
    """

    def __init__(self, server: Any, timeout: float = CALL_SECONDS):
        self._server = server
        self._timeout = timeout

    def get_variables(self, have: tuple[int, int] | None) -> Snapshot | None:
        return ray.get(self._server.get_variables.remote(have), timeout=self._timeout)


class Repeated(Generic[Answer]):
    """A call to a Ray actor that is repeated without blocking.

    Args:
      call: makes the call.
      first: the result until the first reply has arrived.
      every: seconds between the starts of two calls; a call starts only after the previous one has ended.
    """

    def __init__(self, call: "Callable[[], ray.ObjectRef[Any]]", first: Answer, every: float):
        self._call = call
        self._answer = first
        self._every = every
        self._next = time.monotonic()
        self._pending: ray.ObjectRef[Any] | None = None
        self._lock = threading.Lock()

    def newest(self) -> Answer:
        """Return the newest reply."""
        with self._lock:
            if self._pending is not None and ray.wait([self._pending], timeout=0)[0]:
                answered, self._pending = self._pending, None
                with contextlib.suppress(*UNREACHABLE):
                    self._answer = ray.get(answered, timeout=CALL_SECONDS)
            if self._pending is None and time.monotonic() >= self._next:
                self._next = time.monotonic() + self._every
                self._pending = self._call()
            return self._answer


def replay_handle(servers: Sequence[Any]) -> ReplayHandle:
    """Return a handle of the replay shards on these `ReplayServer`s, for writers and datasets in this process.

    The addresses are refreshed up to four times a second while the handle is used, so a server that Ray restarts
    elsewhere is found again.

    Raises:
      CallboardError: one of the servers does not respond.
    """
    lookups = [
        Repeated(server.where.remote, first_answer(server.where.remote, "the ReplayServer"), _LOOKUP_SECONDS)
        for server in servers
    ]
    return ReplayHandle(
        addresses=lambda: [lookup.newest()[0] for lookup in lookups],
        incarnation_ids=lambda: [lookup.newest()[1] for lookup in lookups],
    )


def first_answer(call: "Callable[[], ray.ObjectRef[Any]]", actor: str) -> Any:
    """Return the reply of an actor that may not have started yet.

    Raises:
      CallboardError: the actor does not respond within five minutes.
    """
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            return ray.get(call(), timeout=max(0.0, deadline - time.monotonic()))
        except UNREACHABLE:
            time.sleep(_RETRY_SECONDS)
    raise CallboardError(
        f"{actor} has not answered for {_START_SECONDS:.0f} s: see by `ray status` whether it waits for resources"
    )


def tell_for_certain(call: "Callable[[], ray.ObjectRef[Any]]") -> None:
    """Repeat a call until it succeeds, for up to a minute, since its actor may be starting."""
    deadline = time.monotonic() + _TELL_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(*UNREACHABLE):
            ray.get(call(), timeout=CALL_SECONDS)
            return
        time.sleep(_RETRY_SECONDS)


def address_here(port: int) -> str:
    """Return the `host:port` at which the other hosts of the Ray cluster reach a port of this host."""
    return f"{ray.util.get_node_ip_address()}:{port}"
