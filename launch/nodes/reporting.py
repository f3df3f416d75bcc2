"""The link of a node to the coordinator: counts and values go up, the state of the run comes down."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...replay import ReplayHandle
from .node import Node, NodeContext, NodeHandle, Unreachable
from .step_budget import LeaseRequest

_CALL_SECONDS = 5.0
_SHORT_CALL_SECONDS = 1.0
_CUT_OFF_SECONDS = 3.0


class Report(NamedTuple):
    """What a node tells the coordinator.  Plain Python values only: Courier hangs on NumPy ones."""

    counts: dict[str, int] = {}
    """Added up since the node started: a report that arrives twice, or not at all, does no harm."""
    values: dict[str, float] = {}
    """The newest values of metrics."""
    episodes: list[tuple[float, int]] = []
    """Return and length of the training episodes that ended since the last report."""
    evaluation: dict[str, float] | None = None
    """The result of an evaluation."""
    lease: LeaseRequest | None = None
    """What an actor says about its lease of environment steps."""


class RunState(NamedTuple):
    """What the coordinator answers."""

    stopping: bool
    environment_steps: int
    identities: dict[str, str]
    """The identity of every node that has reported, by name; in an answer those that are new to the node."""
    identities_known: list[Any] | None
    """The version of those identities, which goes back to the coordinator with the next report."""
    report_seconds: float
    """Seconds between two reports."""
    step_limit: int | None = None
    """The renewed limit of the lease, where the report had one."""


class Reporter:
    """Reports to the coordinator, from a thread of its own or by hand.

    Args:
      context: of the node.
      coordinator: its handle.
      collect: makes the next report; what it hands out is not handed out again.
      renew_lease: takes the renewed limit of the lease, where reports have one.
    """

    def __init__(
        self,
        context: NodeContext,
        coordinator: NodeHandle,
        collect: Callable[[], Report],
        renew_lease: Callable[[int], None] = lambda limit: None,
    ):
        self._context = context
        self._coordinator = coordinator
        self.coordinator = coordinator.name
        """Its name."""
        self._client = coordinator.client(_CALL_SECONDS)
        self._collect = collect
        self._renew_lease = renew_lease
        self._sequence = 0
        self._unsent: Report | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self.state = RunState(False, 0, {}, None, 0.5)
        self._answered = time.monotonic()

    def start(self) -> None:
        """Reports about twice a second until `close`, less often where there are many nodes."""
        threading.Thread(target=self._beat_for_ever, name="link", daemon=True).start()

    def beat(self) -> bool:
        """Reports once; False if the coordinator did not answer (the same report is then sent again next time)."""
        with self._lock:
            if self._unsent is None:
                self._unsent = self._collect()
                self._sequence += 1
            report = self._unsent
            try:
                answer = self._client.report(
                    self._context.name,
                    self._context.identity,
                    self._sequence,
                    *map(_plain, report),
                    self.state.identities_known,
                )
            except Unreachable as error:
                logging.warning("the coordinator does not answer: %s", error)
                self._client = self._coordinator.client(self.call_seconds)
                return False
            self._unsent = None
            if self.is_cut_off:
                self._client = self._coordinator.client(_CALL_SECONDS)
            self._answered = time.monotonic()
            state = RunState(*answer)
            if state.step_limit is not None:
                self._renew_lease(state.step_limit)
            # A coordinator that was restarted does not know yet who is there.
            self.state = state._replace(identities={**self.state.identities, **state.identities})
        return True

    def report_now(self) -> None:
        """Has the thread of `start` report at once."""
        self._wake.set()

    @property
    def call_seconds(self) -> float:
        """How long a call of the coordinator may take; short once it is known to be away."""
        return _SHORT_CALL_SECONDS if self.is_cut_off else _CALL_SECONDS

    @property
    def is_cut_off(self) -> bool:
        """Whether the coordinator has not answered for several seconds."""
        return time.monotonic() - self._answered > _CUT_OFF_SECONDS + self.state.report_seconds

    def incarnation(self) -> int | None:
        """The number of earlier incarnations of this node in the run; None if the run stops before it is known."""
        self._context.progress.waits(f"{self.coordinator} to answer")
        while not self._context.stop.is_set():
            try:
                client = self._coordinator.client(_CALL_SECONDS)
                return client.begin_incarnation(self._context.name, self._context.identity)
            except Unreachable as error:
                logging.warning("the coordinator does not answer: %s", error)
        return None

    def wait_for(self, *names: str) -> bool:
        """Waits until those nodes have reported; False if the run stops before."""
        self._context.progress.waits(f"{', '.join(names)} to start")
        while not all(name in self.state.identities for name in names):
            if self._context.stop.is_set():
                return False
            self.beat()
            self._context.stop.wait(0.02)
        return True

    def close(self) -> None:
        """Sends the last report."""
        self.abandon()
        if not self.beat() and not self.is_cut_off:
            self.beat()

    def abandon(self) -> None:
        """Ends the reports without a last one."""
        self._closed = True
        self._wake.set()

    def _beat_for_ever(self) -> None:
        while not self._closed:
            self._wake.clear()
            self.beat()
            if not self._closed:
                self._wake.wait(self.state.report_seconds)


class ReportingNode(Node):
    """A role that reports to the coordinator."""

    def __init__(self, context: NodeContext, coordinator: NodeHandle):
        super().__init__(context)
        self.link = Reporter(context, coordinator, self.collect, self.renew_lease)

    def collect(self) -> Report:
        """What there is to report; called from the link's thread."""
        return Report()

    def renew_lease(self, limit: int) -> None:
        """Takes the renewed limit of a lease of environment steps; called from the link's thread."""

    def replay_handle(self, replay: Sequence[NodeHandle]) -> ReplayHandle:
        """The shards as this node knows them from the coordinator's last answer."""
        return ReplayHandle(
            addresses=lambda: [shard.address() for shard in replay],
            lives=lambda: [self.link.state.identities.get(shard.name, "") for shard in replay],
            in_process=self.context.one_process,
        )

    def run(self) -> None:
        try:
            super().run()
        except BaseException:
            self.link.abandon()
            raise

    def begin_reports(self) -> None:
        """Reports once now, and then again and again; in the inline launcher only when `beat` is called."""
        if self.context.cooperative:
            self.link.beat()
        else:
            self.link.start()

    def beat(self) -> None:
        """Reports by hand, for the inline launcher."""
        self.link.beat()


def _plain(value: Any) -> Any:
    """A part of a report as Courier can send it."""
    if isinstance(value, LeaseRequest):
        return list(value)
    return [list(item) for item in value] if isinstance(value, list) else value
