"""Reaching the Ray actors: the interfaces of weights and replay over them, and calls that nobody waits for."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import ray
from ray import exceptions

from ....agents.weights import Snapshot
from ....data import CallboardError, Layout
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
"""What a call raises while its actor is being restarted; one that is dead for good raises `ActorDiedError`."""


class Parts(NamedTuple):
    """All that a task needs to take part.  Any of it may be replaced by one's own."""

    experiment: Experiment
    layout: Layout
    """Traced: with the specs of records and state."""
    weights: Any
    """Handle of a `ParameterServer`."""
    replay: tuple[Any, ...]
    """Handles of a `ReplayServer` for each shard."""
    progress: Any
    """Handle of a `Progress`."""


class RemoteWeights:
    """The weights of a `ParameterServer`: a `WeightSource`, as `WeightClient` takes it.

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
    """A call to a Ray actor that is made again and again, and never waited for.

    Args:
      call: makes it.
      first: the answer until one has come.
      every: seconds between the beginnings of two calls; none begins before the last has ended.
    """

    def __init__(self, call: "Callable[[], ray.ObjectRef[Any]]", first: Answer, every: float):
        self._call = call
        self._answer = first
        self._every = every
        self._next = time.monotonic()
        self._pending: ray.ObjectRef[Any] | None = None
        self._lock = threading.Lock()

    def newest(self) -> Answer:
        """The newest answer that has come."""
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
    """The shards of replay that these `ReplayServer`s hold, for writers and datasets in this process.

    Where they are is asked four times a second, as long as somebody wants to know: a server that Ray starts again
    elsewhere is found there.

    Raises:
      CallboardError: one of them does not answer.
    """
    lookups = [
        Repeated(server.where.remote, first_answer(server.where.remote, "the ReplayServer"), _LOOKUP_SECONDS)
        for server in servers
    ]
    return ReplayHandle(
        addresses=lambda: [lookup.newest()[0] for lookup in lookups],
        lives=lambda: [lookup.newest()[1] for lookup in lookups],
    )


def first_answer(call: "Callable[[], ray.ObjectRef[Any]]", actor: str) -> Any:
    """What an actor answers that may not be up yet.

    Raises:
      CallboardError: it does not answer within five minutes.
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
    """Makes a call until it is answered, for a minute at most: its actor may be on its way up."""
    deadline = time.monotonic() + _TELL_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(*UNREACHABLE):
            ray.get(call(), timeout=CALL_SECONDS)
            return
        time.sleep(_RETRY_SECONDS)


def address_here(port: int) -> str:
    """The `host:port` by which the other hosts of the Ray cluster reach a port of this one."""
    return f"{ray.util.get_node_ip_address()}:{port}"
