"""The coordinator: it alone owns the live counters, the metrics and the decision to stop."""

import collections
import statistics
import threading
import time
from typing import Any

from ..environments import has_unseen_levels
from .checkpoints import Checkpoints
from .experiment import Run
from .metrics import MetricsWriter
from .role import NodeContext, Role
from .step_budget import LeaseRequest, StepBudget

_ROW_SECONDS = 2.0
_STATUS_SECONDS = 0.5
_EPISODES = 100


class Counters:
    """Counts by source, added up.

    A source is one life of one node.  It reports totals since it began, so a report that comes twice changes nothing,
    and a coordinator that was restarted is told the totals again by all who live.
    """

    def __init__(self, sources: dict[str, dict[str, int]] | None = None):
        self.sources = sources or {}

    def update(self, source: str, counts: dict[str, int]) -> None:
        known = self.sources.setdefault(source, {})
        for name, count in counts.items():
            known[name] = max(count, known.get(name, 0))

    def total(self, name: str) -> int:
        return sum(counts.get(name, 0) for counts in self.sources.values())


class Coordinator(Role):
    """Takes the reports of all nodes, writes metrics, and says when the run is over."""

    served = ("report", "counter_sources", "status")

    def __init__(self, context: NodeContext, run: Run):
        super().__init__(context)
        self._experiment = run.experiment
        self._lock = threading.Lock()
        self._counters = Counters(Checkpoints(run.directory).counter_sources())
        self._budget = StepBudget(
            run.experiment.max_steps, run.experiment.actors, bool(self._counters.sources), time.monotonic()
        )
        self._sequences: dict[str, int] = {}
        self._identities: dict[str, str] = {}
        self._values: dict[str, float] = {}
        self._episodes: collections.deque[tuple[float, int]] = collections.deque(maxlen=_EPISODES)
        self._evaluation: dict[str, float] = {}
        self._stop_reason: str | None = None
        self._rates = _Rates()
        self._begun = time.time()
        self._written_steps = (-1, -1)
        self._next_row = 0.0
        self._next_status = 0.0
        self._metrics = MetricsWriter(run.directory)

    def report(
        self,
        name: str,
        identity: str,
        sequence: int,
        counts: dict[str, int],
        values: dict[str, float],
        episodes: list[list[float]],
        evaluation: dict[str, float] | None,
        lease: list[Any] | None = None,
    ) -> tuple[bool, int, int, dict[str, str], int | None]:
        """Takes a `link.Report`, and answers with the fields of `link.RunState`."""
        with self._lock:
            source = f"{name}#{identity}"
            self._identities[name] = identity
            self._counters.update(source, counts)
            if sequence > self._sequences.get(source, 0):
                self._sequences[source] = sequence
                self._values.update(values)
                self._episodes.extend((float(value), int(length)) for value, length in episodes)
                if evaluation is not None:
                    self._evaluation = self._with_gap(evaluation)
                    self._write_row(self._evaluation)
                    # The next evaluation may come before the next status would be due.
                    self._next_status = 0.0
            self._decide()
            step_limit = None
            if lease is not None:
                done, all_done = counts.get("environment_steps", 0), self._counters.total("environment_steps")
                request, now = LeaseRequest(*lease), time.monotonic()
                step_limit = self._budget.renew(name, identity, sequence, done, request, all_done, now)
            return (
                self._stop_reason is not None,
                self._counters.total("environment_steps"),
                int(self._values.get("learner_steps", 0)),
                dict(self._identities),
                step_limit,
            )

    @property
    def steps_left(self) -> int:
        """Environment steps up to the limit, by the newest reports."""
        with self._lock:
            return max(0, self._experiment.max_steps - self._counters.total("environment_steps"))

    def counter_sources(self) -> dict[str, dict[str, int]]:
        """The counts by source, for the learner's checkpoint."""
        with self._lock:
            return {source: dict(counts) for source, counts in self._counters.sources.items()}

    def status(self) -> dict[str, Any]:
        """The state of the run, for displays."""
        with self._lock:
            return {
                **self._row(),
                **self._evaluation,
                "max_steps": self._experiment.max_steps,
                "stop_return": self._experiment.stop_return,
                "nodes": sorted(self._identities),
            }

    def step(self) -> None:
        now = time.time()
        if now >= self._next_status:
            self._next_status = now + _STATUS_SECONDS
            self.context.tell("status", self.status())
        if now >= self._next_row and not self.context.cooperative:
            self._next_row = now + _ROW_SECONDS
            self.write_metrics()
        if not self.context.cooperative:
            self.context.stop.wait(0.1)

    def finish(self) -> None:
        self.context.tell("status", self.status())
        with self._lock:
            # The nodes that ended last have reported without a step more being done.
            self._write_row()
        self._metrics.close()

    def write_metrics(self) -> None:
        """Writes one row of all metrics, if anything has been done since the last one."""
        with self._lock:
            steps = (self._counters.total("environment_steps"), int(self._values.get("learner_steps", 0)))
            if steps != self._written_steps:
                self._written_steps = steps
                self._write_row()

    def _decide(self) -> None:
        if self._stop_reason is not None:
            return
        experiment, steps = self._experiment, self._counters.total("environment_steps")
        mean = self._evaluation.get("evaluator/return")
        if experiment.stop_return is not None and mean is not None and mean >= experiment.stop_return:
            self._stop_reason = (
                f"the return {mean:.1f}, a mean over {experiment.evaluation_episodes} episodes, "
                f"has reached {experiment.stop_return:g} within {steps:,} environment steps"
            )
        elif steps >= experiment.max_steps:
            self._stop_reason = f"{steps:,} environment steps are done"
        if self._stop_reason is not None:
            self.context.tell("stop", self._stop_reason)

    def _with_gap(self, evaluation: dict[str, float]) -> dict[str, float]:
        if not (self._episodes and has_unseen_levels(self._experiment.env, self._experiment.env_options)):
            return evaluation
        gap = statistics.fmean(value for value, _ in self._episodes) - evaluation["evaluator/return"]
        return {**evaluation, "evaluator/generalisation_gap": gap}

    def _write_row(self, also: dict[str, float] | None = None) -> None:
        self._metrics.write({**self._row(), **(also or {})})

    def _row(self) -> dict[str, Any]:
        environment_steps = self._counters.total("environment_steps")
        learner_steps = int(self._values.get("learner_steps", 0))
        now = time.time()
        row: dict[str, Any] = {
            "time": now,
            "elapsed_seconds": now - self._begun,
            "environment_steps": environment_steps,
            "learner_steps": learner_steps,
            "ignored_ticks": self._counters.total("ignored_ticks"),
            "episodes": self._counters.total("episodes"),
            "learner/duplicates": self._counters.total("duplicates"),
            **self._rates.update(now, environment_steps, learner_steps),
        }
        if self._episodes:
            row["actor/episode_return"] = statistics.fmean(value for value, _ in self._episodes)
            row["actor/episode_length"] = statistics.fmean(length for _, length in self._episodes)
        row.update((name, value) for name, value in sorted(self._values.items()) if name != "learner_steps")
        return row


class _Rates:
    """Steps a second, over the last ten seconds or so."""

    def __init__(self) -> None:
        self._points: collections.deque[tuple[float, int, int]] = collections.deque()

    def update(self, now: float, environment_steps: int, learner_steps: int) -> dict[str, float]:
        points = self._points
        points.append((now, environment_steps, learner_steps))
        while len(points) > 2 and now - points[1][0] > 10.0:
            points.popleft()
        since, environment_before, learner_before = points[0]
        seconds = max(now - since, 1e-3)
        return {
            "actor/steps_per_second": (environment_steps - environment_before) / seconds,
            "learner/steps_per_second": max(0.0, (learner_steps - learner_before) / seconds),
        }
