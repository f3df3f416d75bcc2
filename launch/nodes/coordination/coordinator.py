"""The coordinator: the only owner of the live counters, the metrics and the decision to stop."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import cloudpickle

from ...experiments.checked_run import Run
from ...experiments.settings import settings_by_name
from ...node_names import metric_of, policy_of
from ...processes.listen_filter import refusal
from ...processes.local_socket import served_at
from ...result import result_of
from ...run_directory.checkpoints import Checkpoints, NotWritten
from ...run_directory.coordinator_address import announce
from ...run_directory.metrics import MetricsWriter
from ..node import Node, NodeContext
from ..reports.messages import Command, ControlState, Report, RunState, plain
from ..reports.node_health import thread_stacks
from ..reports.run_control import RunControl, Target
from ..reports.step_budget import StepBudget
from .control_file import ControlFile
from .counters import CounterFile
from .learning_warnings import LearningWarnings
from .node_incarnations import NodeIncarnations
from .node_overview import NodeOverview
from .run_ending import RunEnding
from .run_hooks import RunHooks
from .run_loggers import RunLoggers
from .run_metrics import RunMetrics
from .stopping_rules import StoppingRules, finished_policies

_ROW_SECONDS = 2.0
_STATUS_SECONDS = 0.5
_COUNTERS_SECONDS = 1.0
_REPORT_SECONDS = 0.5
_CONTROLLED_REPORT_SECONDS = 0.05
"""Interval between reports where a session waits for pauses and the results of commands."""
_REPORTS_A_SECOND = 500
"""Upper bound on reports per second over all nodes."""


class Coordinator(Node):
    """Collects the reports of all nodes, writes metrics, and decides when the run ends."""

    served: ClassVar[tuple[str, ...]] = (
        "report",
        "begin_incarnation",
        "checkpoint_state",
        "status",
        "overview",
        "stacks",
        "run_until",
        "set_task",
        "change_settings",
        "request_stop",
        "send_command",
        "replies",
        "remove_command",
        "request_stacks",
        "replied_stacks",
    )

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        clock: Callable[[], float] = time.monotonic,
        expected: Sequence[str] = (),
    ):
        super().__init__(context)
        self._experiment = run.experiment
        self._clock = clock
        self._lock = threading.Lock()
        self._directory = run.directory
        self._opened = contextlib.ExitStack()
        self._policies = tuple(run.policies)
        """The policies that learn."""
        replays = [policy_run.experiment.agent.make_replay(policy_run.layout) for policy_run in run.policy_runs]
        self._has_queue = any(replay.is_queue for replay in replays)
        """Whether replay is read once, so that how full it is means nothing to a user."""
        self._checkpoints = [Checkpoints(policy_run.directory) for policy_run in run.policy_runs]
        self._counter_file = CounterFile(run)
        self._counters = self._counter_file.load()
        self._counters_failed = False
        begun = any(self._counters.totals.values())
        self._rules = StoppingRules(run.experiment, self._counters.totals, clock, run.policies)
        self._budget = StepBudget(run.experiment.max_steps, run.experiment.acting_nodes, restarted=begun, now=clock())
        self._control_file = ControlFile(run)
        self._control = RunControl(run.controlled, len(self._policies))
        self._control.restore(self._control_file.load())
        self._report_seconds = _CONTROLLED_REPORT_SECONDS if run.controlled else _REPORT_SECONDS
        self._sequences: dict[str, tuple[str, int]] = {}
        self._nodes = NodeIncarnations(context.incarnation_id)
        self._overview = NodeOverview(clock, context, self._counters, run.start, expected)
        self._metrics, self._warnings = RunMetrics(run, self._counters, clock), LearningWarnings(run)
        self._short_of_data: dict[str, float] = {}
        self._ending = RunEnding(run.experiment, context.notify, clock)
        self._ends_paused = False
        """Whether the end was requested while the run was paused."""
        self._rows = 0
        self._written_steps = (-1, -1)
        self._next_row = self._next_status = self._next_counters = clock()
        loggers, settings = RunLoggers(run, context.notify), settings_by_name(run.experiment)
        self._metrics_writer = MetricsWriter(run.directory, context.notify, clock, loggers, settings)
        self._hooks = RunHooks(run, context.name, self._counters, self._control, self._take_callback_request)

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
            return plain(self._take_report(name, incarnation_id, sequence, Report.of(report), known))

    def _take_report(
        self, name: str, incarnation_id: str, sequence: int, report: Report, known: list[Any] | None
    ) -> RunState:
        self._metrics.unreported = 0, 0
        newest = self._counters.update(f"{name}#{incarnation_id}", report.counts)
        if newest:
            self._nodes.update(name, incarnation_id)
            policy = policy_of(name)
            learner_step = self._metrics.values.get(metric_of(policy, "learner/step"))
            self._overview.update(name, incarnation_id, report.health, learner_step)
            if "learner_steps" in report.counts:
                self._control.take_learner(policy, report.counts["learner_steps"], report.at_rest)
            self._short_of_data.pop(name, None)
            if report.short_of_data:
                self._short_of_data[name] = report.short_of_data
            if sequence > self._last_sequence(name, incarnation_id):
                self._sequences[name] = incarnation_id, sequence
                self._metrics.add(report.values, report.episodes)
                if report.evaluation is not None:
                    self._take_evaluation(report.evaluation)
                of_policies = self._metrics.add_joint_episodes(report.joint_episodes)
                self._hooks.add([*report.episode_values, *of_policies], report.evaluation)
                self._control.take_replies(name, report.replies)
                for kind, value in report.requests:
                    self._take_request(kind, value)
        if name.startswith("evaluator/"):
            self._ending.hear_evaluator()
        self._decide()
        self._update_control()
        step_limit = None
        if report.lease is not None and newest:
            done, all_done = report.counts.get("environment_steps", 0), self._counters.total("environment_steps")
            now = self._clock()
            step_limit = self._budget.renew(name, incarnation_id, sequence, done, report.lease, all_done, now)
            if self._ending:
                step_limit = done
        return RunState(
            stopping=bool(self._ending),
            environment_steps=self._counters.total("environment_steps"),
            incarnations=self._nodes.changed_since(known),
            incarnations_known=self._nodes.version,
            report_seconds=max(self._report_seconds, len(self._nodes) / _REPORTS_A_SECOND),
            step_limit=step_limit,
            short_of_data=dict(self._short_of_data),
            control=self._control_state(policy_of(name)),
            commands=self._control.commands_for(name),
            finished=finished_policies(self._policies, self._metrics.values),
            seconds=self._rules.seconds,
        )

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

    def request_stop(self, reason: str) -> None:
        """Ends the run as at a limit, without a final evaluation; one that is paused makes no more steps."""
        with self._lock:
            self._ends_paused |= self._control.paused and not self._ending
            self._ending.request(reason)

    @property
    def stopping(self) -> bool:
        """Whether a limit was reached; after the limit of environment steps, the final evaluation still follows."""
        with self._lock:
            return bool(self._ending)

    @property
    def out_of_time(self) -> bool:
        """Whether `max_seconds` have passed."""
        return self._rules.out_of_time

    @property
    def steps_left(self) -> int:
        """Environment steps left until the limit or the next pause, by the newest reports; 0 once the run ends."""
        with self._lock:
            self._update_control()
            if self._ending:
                return 0
            return max(0, self._budget.limit - self._counters.total("environment_steps"))

    @property
    def paused(self) -> bool:
        """Whether the run waits for its session."""
        with self._lock:
            return not self._ending and self._control.paused

    def control(self, policy: str = "") -> ControlState:
        """Returns what the nodes of a policy, or of the whole run, receive with their next reports."""
        with self._lock:
            return self._control_state(policy)

    def checkpoint_state(self) -> tuple[dict[str, dict[str, int]], dict[str, Any]]:
        """Returns what the coordinator contributes to a checkpoint: the counts by source, and changes of the run."""
        with self._lock:
            return self._counters.sources, self._control_file.content(self._control)

    def run_until(self, environment_steps: float, learner_steps: float) -> None:
        """Lets the run continue until one of these totals, and then pauses it."""
        with self._lock:
            self._control.run_until(Target(environment_steps, learner_steps))
            self._update_control()

    def set_task(self, task: Any) -> None:
        """Sets the environments' task, see `run_control`."""
        with self._lock:
            self._control.set_task(task)
            self._save_control()

    def change_settings(self, settings: dict[str, float]) -> None:
        """Changes settings of the agent, see `run_control`."""
        with self._lock:
            self._control.change_settings(settings)
            self._save_control()

    def send_command(self, command_id: str, method: str, arguments: bytes, nodes: list[str]) -> None:
        """Sends a command to nodes, by name, see `run_control`; a repeated call changes nothing."""
        with self._lock:
            self._control.add_command(Command(command_id, method, arguments), nodes)

    def remove_command(self, command_id: str) -> None:
        """Forgets a command whose results have been received."""
        with self._lock:
            self._control.remove_command(command_id)

    def replies(self, command_id: str) -> dict[str, list[Any]]:
        """Returns the fields of each `run_control.Reply` to a command so far, by node."""
        with self._lock:
            return {node: list(reply) for node, reply in self._control.replies(command_id).items()}

    def status(self) -> dict[str, Any]:
        """Returns the state of the run, for displays."""
        limit = self._experiment.max_learner_steps
        with self._lock:
            return {
                **self._row(),
                **self._metrics.evaluation,
                "actors": self._experiment.actors,
                "max_steps": self._experiment.max_steps,
                "max_learner_steps": limit and limit * len(self._policies),
                "seconds_left": self._rules.seconds_left,
                "stop_return": self._experiment.stop_return,
                "has_queue": self._has_queue,
                "stopping": bool(self._ending),
                "paused": not self._ending and self._control.paused,
                "at_rest": not self._budget.outstanding and self._control.learners_rest,
                "rows": self._rows,
                "waiting": {} if self.context.cooperative else self._overview.waiting(),
                "slow_weights": self._overview.slow_weights(),
                "evaluation": self._overview.evaluation(),
                "node_restarts": self._overview.restarts,
                "nodes": sorted(self._nodes),
            }

    def show_progress(self, environment_steps: int, learner_steps: int) -> None:
        """Sends the status while nodes that take turns in one thread have not reported for long; decides nothing.

        Args:
          environment_steps: steps since the last reports.
          learner_steps: likewise.
        """
        now = self._clock()
        if now >= self._next_status:
            self._directory.check_same()
            self._next_status = now + _STATUS_SECONDS
            with self._lock:
                self._metrics.unreported = environment_steps, learner_steps
            self.context.send("status", self.status())

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
        self.send_command(command_id, "stacks", cloudpickle.dumps(((node,), {})), [node])

    def replied_stacks(self, command_id: str) -> list[str] | None:
        """Returns an error and the stacks, one of the two empty; None while the node has not replied."""
        with self._lock:
            replies = list(self._control.replies(command_id).values())
        if not replies:
            return None
        return [replies[0].error, "" if replies[0].error else str(cloudpickle.loads(replies[0].result))]

    def setup(self) -> None:
        methods = (self.overview, self.stacks, self.request_stacks, self.replied_stacks)
        self._opened.enter_context(served_at(self._directory.socket, {method.__name__: method for method in methods}))
        # A process that reads the address may call at the socket at once.
        if self.context.port is not None or self.context.cooperative:
            announce(self._directory.coordinator, self.context.port)
        if self._experiment.listen == "all":
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
        now = self._clock()
        with self._lock:
            self._overview.update_own()
        if now >= self._next_status:
            self._next_status = now + _STATUS_SECONDS
            self.context.send("status", self.status())
        with self._lock:
            if self._hooks.update(self._row):
                self._save_control()
            if not self._ending and self._rules.has_conditions:
                row = {**self._row(), **self._metrics.evaluation}
                self._ending.begin(self._rules.check_conditions(self._steps, row))
            self._decide()
        if now >= self._next_row and not self.context.cooperative:
            self._next_row = now + _ROW_SECONDS
            self.write_metrics()
        if now >= self._next_counters:
            self._next_counters = now + _COUNTERS_SECONDS
            with self._lock:
                self._save_counters()
        if not self.context.cooperative:
            self.context.stop.wait(0.1)

    def finish(self) -> None:
        self._hooks.call("on_run_end")
        self._opened.close()
        with contextlib.suppress(OSError):
            self._directory.coordinator.unlink(missing_ok=True)
        self.context.send("status", self.status())
        with self._lock:
            # The last nodes to end may report new values without new steps.
            self._write_row(always=True)
            sources = _of_other_nodes(self._counters.sources)
        self._metrics_writer.close()
        # With several learners, the first one ends before the actors: its last checkpoint lacks their last counts.
        try:
            for checkpoints in self._checkpoints:
                if not self._directory.is_lost and sources != _of_other_nodes(checkpoints.counter_sources()):
                    checkpoints.replace_counters(self._counters.sources)
        except NotWritten as error:
            self.context.notify(f"could not write the last counters into the checkpoint: {error}")

    def write_metrics(self) -> None:
        """Writes a row of all metrics if any steps have been done since the last row."""
        with self._lock:
            steps = (self._counters.total("environment_steps"), self._counters.total("learner_steps"))
            if steps == self._written_steps:
                return
            self._written_steps = steps
        if self._hooks.has_results:
            self._hooks.call("on_result", result_of(self.status()))
        with self._lock:
            self._write_row()

    def _update_control(self) -> None:
        """Applies the limits of the run and of its session to the steps that are left."""
        steps, learner_steps = self._counters.total("environment_steps"), self._counters.total("learner_steps")
        self._control.update(steps, learner_steps)
        self._rules.set_paused(self._control.paused)
        self._budget.limit = int(min(self._experiment.max_steps, self._control.environment_limit))

    def _control_state(self, policy: str) -> ControlState:
        # The last learner steps of a run that has reached a limit are not subject to a pause.
        is_free = self._ending and not self._ends_paused
        return self._control.state if is_free else self._control.state_for(policy)

    def _take_request(self, kind: str, value: Any) -> None:
        if kind == "task":
            self._control.set_task(value)
            self._save_control()
        elif kind == "stop":
            self._ending.request(value)

    def _take_callback_request(self, kind: str, value: Any) -> None:
        with self._lock:
            self._take_request(kind, value)

    def _save_control(self) -> None:
        try:
            self._control_file.save(self._control)
        except OSError as error:
            self.context.notify(f"could not write what has been changed in the run, until the next checkpoint: {error}")

    def _last_sequence(self, name: str, incarnation_id: str) -> int:
        of, sequence = self._sequences.get(name, ("", 0))
        return sequence if of == incarnation_id else 0

    def _take_evaluation(self, evaluation: dict[str, float]) -> None:
        if "evaluator/final" in evaluation:
            self._ending.finish_evaluation()
        if "evaluator/return" in evaluation:
            self._metrics.add_evaluation(evaluation)
            self._rules.add_evaluation(evaluation)
            self._write_row(self._metrics.evaluation, kind="evaluation")
            # The next evaluation may arrive before the next status is due.
            self._next_status = self._clock()

    def _save_counters(self) -> None:
        if self._directory.is_lost:
            return
        counts = {**self._rules.counts(), **self._hooks.counts}
        self._counters.update(f"{self.context.name}#{self.context.incarnation_id}", counts)
        try:
            self._counter_file.save(self._counters)
            self._metrics.save_ratings()
            self._counters_failed = False
        except OSError as error:
            logging.warning("the counters were not written: %s", error)
            if not self._counters_failed:
                self._counters_failed = True
                self.context.notify(f"could not write the counters, retrying: {error}")

    def _decide(self) -> None:
        if not self._ending:
            self._ending.begin(self._rules.check(self._steps, self._metrics.values, self._metrics.evaluation))
        learned = len(finished_policies(self._policies, self._metrics.values)) == len(self._policies)
        if self._ending.stops_now(self._counters.total("learner_steps"), learned):
            self.context.send("stop", self._ending.reason)

    @property
    def _steps(self) -> int:
        return self._counters.total("environment_steps")

    def _write_row(self, also: dict[str, float] | None = None, kind: str = "", always: bool = False) -> None:
        if self._directory.is_lost:
            return  # TensorBoard's files would go into whatever is in its place.
        # No row may be ahead of the counters that a restarted coordinator would load.
        self._save_counters()
        self._rows += 1
        row = {**self._row(), **(also or {})}
        self._metrics_writer.write(row, kind, always, self._hooks.histograms())
        for line in self._warnings.new(row):
            self.context.notify(line)

    def _row(self) -> dict[str, Any]:
        overview = {} if self.context.cooperative else self._overview.metrics()
        return {**self._metrics.row(), **overview, **self._hooks.row()}


def _of_other_nodes(sources: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Returns the counts without the coordinator's own, which change every second."""
    return {source: counts for source, counts in sources.items() if not source.startswith("coordinator/")}
