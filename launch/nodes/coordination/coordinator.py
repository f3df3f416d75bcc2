"""The coordinator: the only owner of the live counters, the metrics and the decision to stop."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ....runtime.deadlines import Clock, Deadline
from ...experiments.checked_run import Run
from ...experiments.settings import settings_by_name
from ...loggers.logger_thread import LoggerThread
from ...loggers.metric_logger import LoggedRun, logger_names, make_logger
from ...loggers.prometheus_logger import PrometheusLogger
from ...processes.listen_filter import refusal
from ...processes.local_socket import served_at
from ...result import result_of
from ...run_directory.coordinator_address import announce
from ...run_directory.metrics import MetricsWriter
from ..node import Node, NodeContext
from ..reports.messages import Report, plain_message
from ..reports.run_control import RunControl
from .control_file import ControlFile
from .counters import CounterFile
from .memory_watch import MemoryWatch
from .node_overview import NodeOverview
from .report_intake import NodeIncarnations, ReportIntake
from .run_hooks import RunHooks
from .run_limits import RunLimits
from .run_metrics import RunMetrics
from .run_records import RunRecords
from .run_status import RunStatus

_ROW_SECONDS = 2.0
_COUNTERS_SECONDS = 1.0
_MEMORY_SECONDS = 2.0


class Coordinator(Node):
    """Collects the reports of all nodes, writes metrics, and decides when the run ends.

    Its parts share one lock, under which reports, sessions and displays see the run at one moment.
    """

    served: ClassVar[tuple[str, ...]] = (
        "report",
        "begin_incarnation",
        "checkpoint_state",
        *RunControl.served,
        *RunLimits.served,
        *RunStatus.served,
    )

    def __init__(self, context: NodeContext, run: Run, clock: Clock = time.monotonic, expected: Sequence[str] = ()):
        super().__init__(context)
        self._run = run
        self._directory = run.directory
        self._opened = contextlib.ExitStack()
        self._lock = lock = threading.RLock()
        counter_file = CounterFile(run)
        self._counters = counters = counter_file.load()
        self._control_file = ControlFile(run)
        self._control = control = RunControl(run.controlled, len(run.policies), lock)
        control.restore(self._control_file.load())
        self._metrics = metrics = RunMetrics(run, counters, clock)
        self.limits = limits = RunLimits(run, context, counters, metrics, control, clock, lock)
        nodes = NodeIncarnations(context.incarnation_id)
        self._overview = overview = NodeOverview(clock, context, counters, run.start, expected)
        loggers, settings = RunLoggers(run, context.notify), settings_by_name(run.experiment)
        writer = MetricsWriter(run.directory, context.notify, clock, loggers, settings)
        self._hooks = hooks = RunHooks(run, context.name, counters, control, self._take_request)
        control.changed = self._save_control
        self._records = RunRecords(
            run, context, counters, counter_file, limits.rules, metrics, overview, limits.quorum, hooks, writer, lock
        )
        self.display = RunStatus(run, context, self._records, metrics, limits, overview, nodes, control, clock, lock)
        self._intake = ReportIntake(
            run,
            counters,
            metrics,
            overview,
            nodes,
            hooks,
            control,
            limits,
            self._take_evaluation,
            self._take_request,
        )
        for part in (control, limits, self.display):
            self.serve(part)
        self._memory = MemoryWatch(clock)
        self._next_row, self._next_counters, self._next_memory = (Deadline(0.0, clock) for _ in range(3))

    def report(
        self, name: str, incarnation_id: str, sequence: int, report: Sequence[Any], known: list[Any] | None = None
    ) -> list[Any]:
        """Takes a `messages.Report` and returns a `messages.RunState`, both as plain values.

        Args:
          name: name of the node.
          incarnation_id: id of its incarnation.
          sequence: number of the report, from 1 on in every incarnation.
          report: the report.
          known: `incarnations_known` of the last answer; None returns the ids of all nodes.
        """
        with self._lock:
            return plain_message(self._intake.take(name, incarnation_id, sequence, Report.of(report), known))

    def begin_incarnation(self, name: str, incarnation_id: str) -> int:
        """Returns the number of earlier incarnations of a node in this run, including those before a resume.

        A repeated call returns the same number, also after a restart of the coordinator, unless a node died just before
        the coordinator did: that incarnation may be missing from the counters.

        Args:
          name: name of the node.
          incarnation_id: id of its incarnation.
        """
        count = f"incarnations of {name}"
        with self._lock:
            self._counters.update(f"{name}#{incarnation_id}", {count: 1})
            return self._counters.total(count) - 1

    def checkpoint_state(self) -> tuple[dict[str, dict[str, int]], dict[str, Any]]:
        """Returns the coordinator's part of a checkpoint: the counts by source, and changes of the run."""
        with self._lock:
            return self._counters.sources, self._control_file.content(self._control)

    def setup(self) -> None:
        display = self.display
        methods = (display.overview, display.stacks, display.request_stacks, display.replied_stacks)
        self._opened.enter_context(served_at(self._directory.socket, {method.__name__: method for method in methods}))
        # A process that reads the address may call at the socket at once.
        if self.context.port is not None or self.context.cooperative:
            announce(self._directory.coordinator, self.context.port)
        if self._run.output.listen == "all":
            self.context.notify(
                'the ports of this run are open to all machines (listen all); see the documentation\'s page "Security"'
            )
        elif reason := refusal():
            self.context.notify(
                f"the ports of this run are open to all machines: the kernel refuses packet filters ({reason}); "
                "guard them with a firewall, or --private-network"
            )
        self._hooks.call("on_run_start")

    def step(self) -> None:
        self.context.progress.works("serving")
        self._directory.check_same()
        with self._lock:
            self._overview.update_own()
            self._watch_memory()
            self.limits.quorum.suffices()
        self.display.send_if_due()
        with self._lock:
            self._hooks.update(self._records.row)
            if not self.limits.stopping and self.limits.rules.has_conditions:
                self.limits.check_conditions({**self._records.row(), **self._metrics.evaluation})
            self.limits.decide()
        if self._next_row.has_passed and not self.context.cooperative:
            self._next_row.restart(_ROW_SECONDS)
            self.write_metrics()
        if self._next_counters.has_passed:
            self._next_counters.restart(_COUNTERS_SECONDS)
            self._records.save_counters()
        if not self.context.cooperative:
            self.context.stop.wait(0.1)

    def finish(self) -> None:
        self._hooks.call("on_run_end")
        self._opened.close()
        with contextlib.suppress(OSError):
            self._directory.coordinator.unlink(missing_ok=True)
        self.display.send()
        self._records.close()

    def write_metrics(self) -> None:
        """Writes a row of all metrics if any steps have been made since the last row."""
        if not self._records.take_new_steps():
            return
        if self._hooks.has_results:
            # Without the lock: callbacks take their time.
            self._hooks.call("on_result", result_of(self.display.status()))
        self._records.write_row()

    def _watch_memory(self) -> None:
        if self._next_memory.has_passed:
            self._next_memory.restart(_MEMORY_SECONDS)
            for line in self._memory.new(self._overview.healths(), self._metrics.values):
                self.context.notify(line)

    def _take_request(self, kind: str, value: Any) -> None:
        with self._lock:
            if kind == "task":
                self._control.set_task(value)
            elif kind == "stop":
                self.limits.ending.request(value)

    def _take_evaluation(self, evaluation: dict[str, float]) -> None:
        if "evaluator/final" in evaluation:
            self.limits.ending.finish_evaluation()
        if "evaluator/return" in evaluation:
            self._metrics.add_evaluation(evaluation)
            self.limits.rules.add_evaluation(evaluation)
            self._records.write_row(self._metrics.evaluation, kind="evaluation")
            self.display.send_next_time()

    def _save_control(self) -> None:
        try:
            self._control_file.save(self._control)
        except OSError as error:
            self.context.notify(f"could not write what has been changed in the run, until the next checkpoint: {error}")


class RunLoggers:
    """The loggers of a run, each in a thread of its own.

    Args:
      run: the run.
      notify: receives lines for the user.
    """

    def __init__(self, run: Run, notify: Callable[[str], None]):
        makers: dict[str, Callable[[], Any]] = {
            name: functools.partial(make_logger, name) for name in logger_names(run.output.loggers)
        }
        if run.output.prometheus_port is not None:
            makers["prometheus"] = functools.partial(
                PrometheusLogger, run.output.prometheus_host, run.output.prometheus_port
            )
        logged = LoggedRun(run.directory.path, settings_by_name(run.experiment)) if makers else None
        self._threads = [
            LoggerThread(name, make, logged, notify) for name, make in makers.items() if logged is not None
        ]

    def write(self, row: Mapping[str, Any]) -> None:
        """Passes a row to all loggers; returns at once."""
        for thread in self._threads:
            thread.write(row)

    def close(self) -> None:
        """Ends all loggers, after the rows they have not sent yet."""
        for thread in self._threads:
            thread.close()
