"""Writes the records of a run: rows of metrics, and its counters."""

import logging
from threading import RLock
from typing import Any

from ...experiments.checked_run import Run
from ...run_directory.checkpoints import Checkpoints, NotWritten
from ...run_directory.metrics import MetricsWriter
from ..node import NodeContext
from .counters import CounterFile, Counters
from .learning_warnings import LearningWarnings
from .memory_watch import memory_metrics
from .node_overview import NodeOverview
from .run_hooks import RunHooks
from .run_limits import ActorQuorum
from .run_metrics import RunMetrics
from .stopping_rules import StoppingRules


class RunRecords:
    """Writes rows of metrics and, before each, the counters: no row is ahead of what a restarted coordinator loads.

    Args:
      run: the run.
      context: context of the coordinator.
      counters: its counters.
      counter_file: where they are kept.
      rules: count the seconds and evaluations of the run.
      metrics: the metrics of its nodes.
      overview: the metrics of all nodes together.
      quorum: counts the actors, where they come and go.
      hooks: the metrics of episodes and callbacks.
      writer: writes the rows.
      lock: the coordinator's lock.
    """

    def __init__(
        self,
        run: Run,
        context: NodeContext,
        counters: Counters,
        counter_file: CounterFile,
        rules: StoppingRules,
        metrics: RunMetrics,
        overview: NodeOverview,
        quorum: ActorQuorum,
        hooks: RunHooks,
        writer: MetricsWriter,
        lock: RLock,
    ):
        self._context = context
        self._directory = run.directory
        self._checkpoints = [Checkpoints(policy_run.directory) for policy_run in run.policy_runs]
        self._counters = counters
        self._counter_file = counter_file
        self._rules = rules
        self._metrics = metrics
        self._overview = overview
        self._quorum = quorum
        self._hooks = hooks
        self._writer = writer
        self._lock = lock
        self._warnings = LearningWarnings(run)
        self._counters_failed = False
        self._written_steps = (-1, -1)
        self.rows = 0
        """Number of rows that this coordinator has written."""

    def row(self) -> dict[str, Any]:
        """Returns the newest values of all metrics but those of the evaluation."""
        overview = {} if self._context.cooperative else self._overview.metrics()
        if self._quorum.counts:
            overview["actor/present"] = self._quorum.present
        memory = memory_metrics(self._overview.healths())
        return {**self._metrics.row(), **overview, **memory, **self._hooks.row()}

    def take_new_steps(self) -> bool:
        """Returns whether any steps have been made since this was last called."""
        with self._lock:
            steps = (self._counters.total("environment_steps"), self._counters.total("learner_steps"))
            is_new = steps != self._written_steps
            self._written_steps = steps
            return is_new

    def write_row(self, also: dict[str, float] | None = None, kind: str = "", always: bool = False) -> None:
        """Writes a row, and sends the user the warnings that follow from it.

        Args:
          also: further values.
          kind: see `MetricsWriter.write`, as for `always`.
          always: see there.
        """
        with self._lock:
            if self._directory.is_lost:
                return  # TensorBoard's files would go into whatever is in its place.
            self.save_counters()
            self.rows += 1
            row = {**self.row(), **(also or {})}
            self._writer.write(row, kind, always, self._hooks.histograms())
            for line in self._warnings.new(row):
                self._context.notify(line)

    def save_counters(self) -> None:
        """Writes the counters; a failure is reported once, and the next call tries again."""
        with self._lock:
            if self._directory.is_lost:
                return
            counts = {**self._rules.counts(), **self._hooks.counts}
            self._counters.update(f"{self._context.name}#{self._context.incarnation_id}", counts)
            try:
                self._counter_file.save(self._counters)
                self._metrics.save_ratings()
                self._counters_failed = False
            except OSError as error:
                logging.warning("the counters were not written: %s", error)
                if not self._counters_failed:
                    self._counters_failed = True
                    self._context.notify(f"could not write the counters, retrying: {error}")

    def close(self) -> None:
        """Writes the last row, and the last counters into the newest checkpoints."""
        with self._lock:
            # The last nodes to end may report new values without new steps.
            self.write_row(always=True)
            sources = _of_other_nodes(self._counters.sources)
        self._writer.close()
        # With several learners, the first one ends before the actors: its last checkpoint lacks their last counts.
        try:
            for checkpoints in self._checkpoints:
                if not self._directory.is_lost and sources != _of_other_nodes(checkpoints.counter_sources()):
                    checkpoints.replace_counters(self._counters.sources)
        except NotWritten as error:
            self._context.notify(f"could not write the last counters into the checkpoint: {error}")


def _of_other_nodes(sources: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Returns the counts without the coordinator's own, which change every second."""
    return {source: counts for source, counts in sources.items() if not source.startswith("coordinator/")}
