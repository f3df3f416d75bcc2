"""Decides when the next stage of a curriculum begins."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...experiments.curriculum import Stage, is_of_episodes
from ..episodes.metric_windows import MetricWindows


class CurriculumProgress:
    """The stage that a run has reached.

    Metrics of training episodes count only those episodes that began with the current task, and metrics of evaluations
    only evaluations since the stage began; so a stage cannot end by what an easier one has achieved.

    Args:
      stages: the stages.
      begun: number of stages that have begun, for a resumed run.
    """

    def __init__(self, stages: Sequence[Stage], begun: int):
        self._stages = stages
        self.begun = min(begun, len(stages))
        """Number of stages that have begun."""
        self._evaluation: Mapping[str, float] = {}

    def add_evaluation(self, evaluation: Mapping[str, float]) -> None:
        """Takes the metrics of an evaluation."""
        self._evaluation = evaluation

    def next_stage(
        self, environment_steps: int, metrics: Callable[[], Mapping[str, Any]], windows: MetricWindows
    ) -> Stage | None:
        """Returns the stage that begins now, and counts it as begun; None if the current one continues.

        Args:
          environment_steps: of the whole run.
          metrics: returns the newest values of metrics other than those of episodes and evaluations.
          windows: the metrics of episodes.
        """
        if self.begun == len(self._stages):
            return None
        stage = self._stages[self.begun]
        if self.begun and not self._begins(stage, environment_steps, metrics, windows):
            return None
        self.begun += 1
        self._evaluation = {}
        return stage

    def _begins(
        self, stage: Stage, environment_steps: int, metrics: Callable[[], Mapping[str, Any]], windows: MetricWindows
    ) -> bool:
        if stage.steps is not None:
            return environment_steps >= stage.steps
        condition = stage.condition
        assert condition is not None
        if condition.metric.startswith("evaluator/"):
            return condition.holds(self._evaluation)
        if is_of_episodes(condition.metric):
            return condition.holds(windows.row_of_task(stage.episodes))
        return condition.holds(metrics())
