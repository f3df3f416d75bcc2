"""The parts of a run beyond training, in the coordinator: metrics of episodes, a curriculum, and callbacks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....callbacks import CallbackFailed, CallbackRun
from ....environments.batches.episode_metrics import parse_episode_metrics
from ...experiments.checked_run import Run
from ...experiments.curriculum import Stage, is_of_episodes
from ..episodes.callback_calls import CallbackCalls
from ..episodes.episode_watch import PREFIX
from ..episodes.metric_windows import MetricWindows
from ..reports.run_control import RunControl
from .counters import Counters

_STAGES = "curriculum_stages"
_CALLBACK_PREFIX = "callbacks/"
_SECONDS = "seconds"


class RunHooks:
    """Metrics of episodes, curriculum and callbacks of a run.  Not thread-safe, except for `call`.

    Args:
      run: the run.
      node: name of the coordinator.
      counters: the run's counters, which also keep the number of stages that have begun.
      control: holds the task.
      request: passes on what callbacks request, see `Report.requests`.
    """

    def __init__(
        self, run: Run, node: str, counters: Counters, control: RunControl, request: Callable[[str, Any], None]
    ):
        self._counters = counters
        self._control = control
        metrics = parse_episode_metrics(run.episodes.episode_metrics)
        self._windows = MetricWindows([f"{PREFIX}{metric.name}" for metric in metrics if metric.histogram])
        self._curriculum = CurriculumProgress(run.episodes.curriculum, counters.total(_STAGES))
        self._has_callbacks = bool(run.episodes.callbacks)
        self._from_callbacks: dict[str, float] = {}
        self._calls = CallbackCalls(
            run.episodes.callbacks,
            CallbackRun(
                node,
                run.experiment,
                run.directory.path,
                lambda: counters.total("environment_steps"),
                lambda: control.state.task,
                request,
            ),
        )
        self._windows.set_task(control.state.task)
        self.update(dict)

    def add(self, episodes: Sequence[Sequence[Any]], evaluation: Mapping[str, float] | None) -> None:
        """Takes the metrics of a report: fields of `EpisodeValues`, and an evaluation if there was one."""
        self._windows.set_task(self._control.state.task)
        self._windows.add(episodes)
        if evaluation is not None:
            self._curriculum.add_evaluation(evaluation)

    def update(self, metrics: Callable[[], Mapping[str, Any]]) -> bool:
        """Begins the next stage of the curriculum if it is due; returns whether it has.

        Args:
          metrics: returns the newest metrics.
        """
        self._windows.set_task(self._control.state.task)
        stage = self._curriculum.next_stage(self._counters.total("environment_steps"), metrics, self._windows)
        if stage is None:
            return False
        self._counters.add_past(_STAGES, 1)
        self._control.set_task(stage.task)
        self._windows.set_task(stage.task)
        return True

    def row(self) -> dict[str, float]:
        """Returns the metrics for a row."""
        row = {**self._windows.row(), **self._from_callbacks}
        if self._curriculum.begun:
            row["curriculum/stage"] = self._curriculum.begun
        if self._has_callbacks:
            row[f"{_CALLBACK_PREFIX}{_SECONDS}"] = self._counters.total("callback_microseconds") / 1e6
        return row

    def histograms(self) -> dict[str, list[float]]:
        """Returns values by the names of the metrics whose distributions are wanted."""
        return self._windows.histograms()

    @property
    def has_results(self) -> bool:
        """Whether callbacks are called before a row of metrics is written."""
        return self._calls.has("on_result")

    def call(self, method: str, *arguments: Any) -> None:
        """Calls a method of the callbacks and keeps the metrics that it returns; without the coordinator's lock.

        Raises:
          CallbackFailed: as in `CallbackCalls.call`, or a metric has the name of one of the run's.
        """
        metrics = self._calls.call(method, *arguments)
        if _SECONDS in metrics:
            raise CallbackFailed(
                f"a callback returned the metric {_SECONDS!r} in {method}, but {_CALLBACK_PREFIX}{_SECONDS} is the "
                "time that callbacks take: give it another name"
            )
        self._from_callbacks.update({f"{_CALLBACK_PREFIX}{name}": value for name, value in metrics.items()})

    @property
    def counts(self) -> dict[str, int]:
        """Counts of this incarnation of the coordinator."""
        return self._calls.counts


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
