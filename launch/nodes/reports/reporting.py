"""A node's reports to the coordinator: counts and values go up, the state of the run comes back."""

import functools
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ....errors import CallboardError
from ....replay import ReplayHandle
from ....runtime.deadlines import Clock
from ...node_names import metric_of, policy_of
from ...processes.temporary_files import has_space
from ..node import Node, NodeClient, NodeContext, NodeHandle, Unreachable
from .commands import CommandQueue
from .messages import NodeHealth, Report, RunState, plain_message
from .node_health import NodeProbe

_CALL_SECONDS = 5.0
_SHORT_CALL_SECONDS = 1.0
_CUT_OFF_SECONDS = 3.0
_SPACE_SECONDS = 2.0


class KnownLearners:
    """The learners of a policy at the coordinator's last answer.

    Args:
      informed: has that answer.
      policy: name of the policy; empty if the run has one policy.
      while_others_learn: whether they count as finished only until the run ends, as it does once all have finished.
    """

    def __init__(self, informed: "Reporter", policy: str, while_others_learn: bool = False):
        self._informed = informed
        self._policy = policy
        self._label = f"learner/{policy}" if policy else "learner"
        self._while_others_learn = while_others_learn

    @property
    def have_finished(self) -> bool:
        """Whether the learners have made their last step: nothing takes data from replay any more."""
        state = self._informed.state
        return self._policy in state.finished and not (self._while_others_learn and state.stopping)

    def short_of_data(self, rank: int) -> float:
        """Returns the seconds for which the learner of this rank had been waiting for data."""
        return self._informed.state.short_of_data.get(f"{self._label}/{rank}", 0.0)


class Reporter:
    """Reports to the coordinator, from a background thread or through explicit calls.

    Args:
      context: context of the node.
      coordinator: handle of the coordinator.
      collect: makes the next report; nothing it returns is reported twice.
      renew_lease: receives the new limit of the lease, if reports request one.
      clock: the clock; another one in tests.
      measure: returns the node's health, or None if it is too early for that.
    """

    def __init__(
        self,
        context: NodeContext,
        coordinator: NodeHandle,
        collect: Callable[[], Report],
        renew_lease: Callable[[int], None] = lambda limit: None,
        clock: Clock = time.monotonic,
        measure: Callable[[], NodeHealth | None] = lambda: None,
    ):
        self._context = context
        self._policy = policy_of(context.name)
        self._coordinator = coordinator
        self.coordinator = coordinator.name
        """Name of the coordinator."""
        self._client = coordinator.client(_CALL_SECONDS)
        self._collect = collect
        self._renew_lease = renew_lease
        self._measure = measure
        self._sequence = 0
        self._unsent: Report | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self.state = RunState(False, 0, {}, None, 0.5)
        self.commands = CommandQueue()
        self._requests: list[tuple[str, Any]] = []
        self._clock = clock
        self.failure: Exception | None = None
        """The error that has ended the background thread, which reports nothing any more."""
        self._answered = clock()

    def start(self) -> None:
        """Reports about twice a second until `close`, less often if there are many nodes."""
        threading.Thread(target=self._report_forever, name="reports", daemon=True).start()

    def report(self) -> bool:
        """Reports once; returns False if the coordinator did not answer, and the next call then resends the report."""
        with self._lock:
            if self._unsent is None:
                requests, self._requests = self._requests, []
                collected = self._collect()
                self._unsent = collected._replace(
                    values={metric_of(self._policy, name): value for name, value in collected.values.items()},
                    replies=self.commands.take_replies(),
                    requests=requests,
                    health=self._measure(),
                )
                self._sequence += 1
            report = self._unsent
            try:
                answer = self._client.report(
                    self._context.name,
                    self._context.incarnation_id,
                    self._sequence,
                    plain_message(report),
                    self.state.incarnations_known,
                )
            except Unreachable as error:
                logging.warning("the coordinator does not answer: %s", error)
                self._client = self._coordinator.client(self.call_seconds)
                return False
            logging.debug("report %d: %s %s", self._sequence, report.counts, report.values)
            self._unsent = None
            if self.is_cut_off:
                self._client = self._coordinator.client(_CALL_SECONDS)
            self._answered = self._clock()
            state = RunState.of(answer)
            if self.commands.receive(state.commands):
                self._wake.set()
            if state.step_limit is not None:
                self._renew_lease(state.step_limit)
            # A restarted coordinator has not yet heard from all nodes, so keep the known ids.
            self.state = state._replace(incarnations={**self.state.incarnations, **state.incarnations})
        return True

    def request(self, kind: str, value: Any) -> None:
        """Adds a request to the next report, see `Report.requests`."""
        self._requests.append((kind, value))

    def report_now(self) -> None:
        """Makes the background thread report at once."""
        self._wake.set()

    @property
    def call_seconds(self) -> float:
        """Timeout of a call to the coordinator; short once it is known not to answer."""
        return _SHORT_CALL_SECONDS if self.is_cut_off else _CALL_SECONDS

    @property
    def is_cut_off(self) -> bool:
        """Whether the coordinator has not answered for several seconds."""
        return self._clock() - self._answered > _CUT_OFF_SECONDS + self.state.report_seconds

    def incarnation(self) -> int | None:
        """Returns the number of earlier incarnations of this node in the run; None if the run stops first."""
        self._context.progress.waits(f"{self.coordinator} to answer")
        while not self._context.stop.is_set():
            try:
                client = self._coordinator.client(_CALL_SECONDS)
                return client.begin_incarnation(self._context.name, self._context.incarnation_id)
            except Unreachable as error:
                logging.warning("the coordinator does not answer: %s", error)
        return None

    def wait_for(self, *names: str) -> bool:
        """Waits until those nodes have reported; returns False if the run stops first."""
        self._context.progress.waits(f"{', '.join(names)} to start")
        while not all(name in self.state.incarnations for name in names):
            if self._context.stop.is_set():
                return False
            self.report()
            self._context.stop.wait(0.02)
        return True

    def learners_of(self, policy: str = "", while_others_learn: bool = False) -> KnownLearners:
        """Returns the learners of a policy, as the coordinator's newest answer has them.

        Args:
          policy: the policy, if this node is not one of that policy alone.
          while_others_learn: see `KnownLearners`.
        """
        return KnownLearners(self, policy or self._policy, while_others_learn)

    def replay_handle(self, replay: Sequence[NodeHandle]) -> ReplayHandle:
        """Returns a handle to the shards, with their incarnations as of the coordinator's last answer."""
        return ReplayHandle(
            addresses=lambda: [shard.address() for shard in replay],
            windows=functools.cache(lambda shard, timeout: NodeClient(replay[shard], timeout)),
            incarnation_ids=lambda: [self.state.incarnations.get(shard.name, "") for shard in replay],
            in_process=self._context.one_process,
        )

    def close(self) -> None:
        """Stops reporting, after a last report."""
        self.abandon()
        with self._lock:
            unanswered = self._unsent is not None
        # A report that is still unanswered is repeated first; it does not contain what was counted since.
        for _ in range(2 if unanswered else 1):
            if not self.report() and (self.is_cut_off or not self.report()):
                return

    def abandon(self) -> None:
        """Stops reporting, without a last report."""
        self._closed = True
        self._wake.set()

    def _report_forever(self) -> None:
        while not self._closed:
            self._wake.clear()
            try:
                self.report()
            except Exception as error:
                self.failure = error
                return
            if not self._closed:
                self._wake.wait(self.state.report_seconds)


class ReportingNode(Node):
    """A node that reports to the coordinator."""

    def __init__(self, context: NodeContext, coordinator: NodeHandle):
        super().__init__(context)
        probe = NodeProbe(context.progress, self.seconds_waited, self.weights_step)
        self.reporter = Reporter(context, coordinator, self.collect, self.renew_lease, measure=probe.measure)

    def collect(self) -> Report:
        """Returns the next report; called from the reporting thread."""
        return Report()

    def renew_lease(self, limit: int) -> None:
        """Takes the new limit of the lease of environment steps; called from the reporting thread."""

    def seconds_waited(self) -> dict[str, float]:
        """Returns the seconds that the node has waited so far, by what for, where its progress does not mark them."""
        return {}

    def weights_step(self) -> int | None:
        """Returns the learner step of the weights that the node acts with; None if it has none."""
        return None

    def between_steps(self) -> None:
        if self.reporter.failure is not None:
            raise self.reporter.failure
        if self.reporter.commands.pending:
            self.reporter.commands.execute(self.command)
            self.reporter.report_now()

    def command(self, method: str) -> Callable[..., Any]:
        """Returns the function that executes the commands of a name, see `run_control`."""
        raise CallboardError(f"{self.context.name} has no command {method!r}")

    def wait_for_space(self) -> None:
        """Waits, where the disk is full, until the node can start; other nodes continue meanwhile."""
        full = False
        while not self.context.stop.is_set() and not has_space(tempfile.gettempdir()):
            if not full:
                self.context.notify("waits for space on the disk, which is full, to start")
            full = True
            self.context.progress.waits("space on the disk")
            self.context.stop.wait(_SPACE_SECONDS)

    def run(self) -> None:
        self.wait_for_space()
        try:
            super().run()
        except BaseException:
            self.reporter.abandon()
            raise

    def begin_reports(self) -> None:
        """Starts reporting in the background; in the inline launcher reports once, and then only on `report`."""
        if self.context.cooperative:
            self.reporter.report()
        else:
            self.reporter.start()

    def report(self) -> None:
        """Reports once, and takes what the answer contains; for the inline launcher."""
        self.reporter.report()
        self.between_steps()
