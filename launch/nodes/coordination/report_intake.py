"""Takes the reports of all nodes into the counts and metrics of the run, and answers them."""

from collections.abc import Callable, Iterator
from typing import Any

from ...experiments.checked_run import Run
from ...node_names import metric_of, policy_of
from ..reports.messages import Report, RunState
from ..reports.run_control import RunControl
from .counters import Counters
from .node_overview import NodeOverview
from .run_hooks import RunHooks
from .run_limits import RunLimits
from .run_metrics import RunMetrics


class NodeIncarnations:
    """Incarnation ids of all nodes that have reported, and which of them have changed since a given version.

    Args:
      incarnation: id of the coordinator's incarnation; versions issued by another incarnation are ignored.
    """

    def __init__(self, incarnation: str):
        self._incarnation = incarnation
        self._number = 0
        # Ordered by last change.
        self._nodes: dict[str, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    @property
    def version(self) -> list[Any]:
        """The current version, as plain Python, for `changed_since`."""
        return [self._incarnation, self._number]

    def update(self, name: str, incarnation_id: str) -> None:
        """Records a node's report."""
        known = self._nodes.get(name)
        if known is None or known[0] != incarnation_id:
            self._number += 1
            self._nodes.pop(name, None)
            self._nodes[name] = incarnation_id, self._number

    def changed_since(self, version: list[Any] | None) -> dict[str, str]:
        """Returns the ids that are new since a version."""
        incarnation, number = version or ("", 0)
        if incarnation != self._incarnation:
            number = 0
        changed: dict[str, str] = {}
        for name in reversed(self._nodes):
            incarnation_id, at = self._nodes[name]
            if at <= number:
                break
            changed[name] = incarnation_id
        return changed


_REPORT_SECONDS = 0.5
_CONTROLLED_REPORT_SECONDS = 0.05
"""Interval between reports where a session waits for pauses and the results of commands."""
_REPORTS_A_SECOND = 500
"""Upper bound on reports per second over all nodes."""


class ReportIntake:
    """Takes reports.  A report that arrives twice counts once.  Not thread-safe: called under the coordinator's lock.

    Args:
      run: the run.
      counters: receive the counts.
      metrics: receive values and episodes.
      overview: receives the health of nodes.
      nodes: the incarnations of nodes.
      hooks: receive the metrics of episodes.
      control: receives the results of commands, and has commands for nodes.
      limits: decide after each report whether the run ends.
      take_evaluation: called with the result of each evaluation.
      take_request: called with each request, see `Report.requests`.
    """

    def __init__(
        self,
        run: Run,
        counters: Counters,
        metrics: RunMetrics,
        overview: NodeOverview,
        nodes: NodeIncarnations,
        hooks: RunHooks,
        control: RunControl,
        limits: RunLimits,
        take_evaluation: Callable[[dict[str, float]], None],
        take_request: Callable[[str, Any], None],
    ):
        self._counters = counters
        self._metrics = metrics
        self._overview = overview
        self._nodes = nodes
        self._hooks = hooks
        self._control = control
        self._limits = limits
        self._take_evaluation = take_evaluation
        self._take_request = take_request
        self._seconds = _CONTROLLED_REPORT_SECONDS if run.controlled else _REPORT_SECONDS
        self._sequences: dict[str, tuple[str, int]] = {}
        self._short_of_data: dict[str, float] = {}

    def take(self, name: str, incarnation_id: str, sequence: int, report: Report, known: list[Any] | None) -> RunState:
        """Takes a report and returns the answer; see `Coordinator.report` for the arguments."""
        self._metrics.unreported = 0, 0
        newest = self._counters.update(f"{name}#{incarnation_id}", report.counts)
        if newest:
            self._take_state(name, incarnation_id, report)
            if sequence > self._last_sequence(name, incarnation_id):
                self._sequences[name] = incarnation_id, sequence
                self._take_news(name, report)
        self._limits.quorum.hear(name)
        if name.startswith("evaluator/"):
            self._limits.ending.hear_evaluator()
        self._limits.decide()
        self._limits.update()
        step_limit = None
        if report.lease is not None and newest:
            done = report.counts.get("environment_steps", 0)
            step_limit = self._limits.lease(name, incarnation_id, sequence, done, report.lease)
        return RunState(
            stopping=self._limits.stopping,
            environment_steps=self._counters.total("environment_steps"),
            incarnations=self._nodes.changed_since(known),
            incarnations_known=self._nodes.version,
            report_seconds=max(self._seconds, len(self._nodes) / _REPORTS_A_SECOND),
            step_limit=step_limit,
            short_of_data=dict(self._short_of_data),
            control=self._limits.control_state(policy_of(name)),
            commands=self._control.commands_for(name),
            finished=self._limits.finished,
            seconds=self._limits.rules.seconds,
        )

    def _take_state(self, name: str, incarnation_id: str, report: Report) -> None:
        """Takes the state of the node, which each report repeats."""
        policy = policy_of(name)
        self._nodes.update(name, incarnation_id)
        learner_step = self._metrics.values.get(metric_of(policy, "learner/step"))
        self._overview.update(name, incarnation_id, report.health, learner_step)
        if "learner_steps" in report.counts:
            self._control.take_learner(policy, report.counts["learner_steps"], report.at_rest)
        self._short_of_data.pop(name, None)
        if report.short_of_data:
            self._short_of_data[name] = report.short_of_data

    def _take_news(self, name: str, report: Report) -> None:
        """Takes the news of a report, which no other report repeats."""
        self._metrics.add(report.values, report.episodes)
        if report.evaluation is not None:
            self._take_evaluation(report.evaluation)
        of_policies = self._metrics.add_joint_episodes(report.joint_episodes)
        self._hooks.add([*report.episode_values, *of_policies], report.evaluation)
        self._control.take_replies(name, report.replies)
        for kind, value in report.requests:
            self._take_request(kind, value)

    def _last_sequence(self, name: str, incarnation_id: str) -> int:
        of, sequence = self._sequences.get(name, ("", 0))
        return sequence if of == incarnation_id else 0
