"""The state of a run, for displays: on the screen that has started it, and in `callboard top`."""

import os
import socket
from threading import RLock
from typing import Any, ClassVar

import cloudpickle

from ....runtime.deadlines import Clock
from ...experiments.checked_run import Run
from ..node import NodeContext
from ..reports.node_health import thread_stacks
from ..reports.run_control import RunControl
from .node_overview import NodeOverview
from .report_intake import NodeIncarnations
from .run_limits import RunLimits
from .run_metrics import RunMetrics
from .run_records import RunRecords

_STATUS_SECONDS = 0.5


class RunStatus:
    """Serves the state of a run, and sends it to the launcher twice a second.

    Args:
      run: the run.
      context: context of the coordinator.
      records: has the newest row of metrics.
      metrics: the newest metrics.
      limits: knows whether the run pauses or ends.
      overview: the health of the nodes.
      nodes: the nodes that have reported.
      control: sends commands to nodes.
      clock: a monotonic clock.
      lock: the coordinator's lock.
    """

    served: ClassVar[tuple[str, ...]] = ("status", "overview", "stacks", "request_stacks", "replied_stacks")

    def __init__(
        self,
        run: Run,
        context: NodeContext,
        records: RunRecords,
        metrics: RunMetrics,
        limits: RunLimits,
        overview: NodeOverview,
        nodes: NodeIncarnations,
        control: RunControl,
        clock: Clock,
        lock: RLock,
    ):
        self._run = run
        self._context = context
        self._records = records
        self._metrics = metrics
        self._limits = limits
        self._overview = overview
        self._nodes = nodes
        self._control = control
        self._clock = clock
        self._lock = lock
        self._next = clock()
        replays = [policy_run.agent.make_replay(policy_run.layout) for policy_run in run.policy_runs]
        self._has_queue = any(replay.is_queue for replay in replays)
        """Whether replay is read once, so that how full it is means nothing to a user."""

    def status(self) -> dict[str, Any]:
        """Returns the state of the run."""
        limits, overview = self._limits, self._overview
        limit = self._run.limits.max_learner_steps
        with self._lock:
            return {
                **self._records.row(),
                **self._metrics.evaluation,
                "actors": self._run.placement.actors,
                "max_steps": self._run.limits.max_steps,
                "max_learner_steps": limit and limit * len(self._run.policies),
                "seconds_left": limits.rules.seconds_left,
                "stop_return": self._run.limits.stop_return,
                "has_queue": self._has_queue,
                "stopping": limits.stopping,
                "paused": limits.paused,
                "at_rest": limits.at_rest,
                "rows": self._records.rows,
                "waiting": {} if self._context.cooperative else overview.waiting(),
                "slow_weights": overview.slow_weights(),
                "evaluation": overview.evaluation(),
                "node_restarts": overview.restarts,
                "nodes": sorted(self._nodes),
            }

    def overview(self) -> dict[str, Any]:
        """Returns the status, a row for every node (`NodeOverview.table`), and host and process of the coordinator."""
        status = self.status()
        with self._lock:
            table = self._overview.table()
        return {**status, "table": table, "coordinator": [socket.gethostname(), os.getpid()]}

    def stacks(self, node: str) -> str:
        """Returns the stacks of all threads of this process; that of a node in a thread comes first."""
        return thread_stacks(node)

    def request_stacks(self, command_id: str, node: str) -> None:
        """Requests the stacks of a node of another process; `replied_stacks` returns them."""
        self._control.send_command(command_id, "stacks", cloudpickle.dumps(((node,), {})), [node])

    def replied_stacks(self, command_id: str) -> list[str] | None:
        """Returns an error and the stacks, one of the two empty; None while the node has not replied."""
        for _, error, result, _ in (self._control.replies(command_id) or {}).values():
            return [error, "" if error else str(cloudpickle.loads(result))]
        return None

    def send(self) -> None:
        """Sends the status to the launcher."""
        self._context.send("status", self.status())

    def send_if_due(self) -> None:
        """Sends the status if half a second has passed since the last."""
        if self._is_due():
            self.send()

    def send_next_time(self) -> None:
        """Makes the next `send_if_due` send: the next evaluation may arrive before the next status is due."""
        self._next = self._clock()

    def show_progress(self, environment_steps: int, learner_steps: int) -> None:
        """Sends the status while nodes that take turns in one thread have not reported for long; decides nothing.

        Args:
          environment_steps: steps since the last reports.
          learner_steps: likewise.
        """
        if self._is_due():
            self._run.directory.check_same()
            with self._lock:
                self._metrics.unreported = environment_steps, learner_steps
            self.send()

    def _is_due(self) -> bool:
        """Returns whether the status is due now, and if so when the next is."""
        now = self._clock()
        due = now >= self._next
        if due:
            self._next = now + _STATUS_SECONDS
        return due
