"""A schedule of the environments' tasks: its stages, and when each of them begins."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import Interval

from ...callbacks import plain_task
from ...errors import CallboardError
from ...settings.setting_types import check_ranges
from .stop_conditions import Condition, parse_conditions

SETTING = "curriculum"


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage of a curriculum.

    Attributes:
      task: the task of the training environments, see docs/guides/curriculum.md; None for their own.
      steps: environment steps of the run at which the stage begins.
      when: condition at which the stage begins, such as `episode/success >= 0.8`, as in `stop_when`.
      episodes: where `when` names a metric of training episodes, the number of newest episodes over which its mean is
        taken; all of them must have begun with the task of the stage before.
    """

    task: Any = None
    steps: Annotated[int, Interval(ge=1, le=2**62)] | None = None
    when: str | None = None
    episodes: Annotated[int, Interval(ge=1, le=100)] = 100

    @property
    def condition(self) -> Condition | None:
        """The condition in `when`."""
        return None if self.when is None else parse_conditions([self.when], f"{SETTING}: when")[0]


def check_stages(stages: Sequence[Stage]) -> None:
    """Checks that stages can follow each other; does not check the metrics that they name.

    Raises:
      CallboardError: a stage has no beginning, or two; or its task is not plain data.
    """
    steps = 0
    for number, stage in enumerate(stages, 1):
        what = f"stage {number} of the curriculum"
        if not isinstance(stage, Stage):
            raise CallboardError(f"{what} must be settings such as {{task: ..., steps: 10000}}, not {stage!r}")
        check_ranges(stage, f"{what}: ")
        try:
            plain_task(stage.task)
        except CallboardError as error:
            raise CallboardError(f"{what}: {error}") from error
        begins = [name for name in ("steps", "when") if getattr(stage, name) is not None]
        if number == 1 and begins:
            raise CallboardError(f"{what} begins with the run: leave {begins[0]} out, or write a stage before it")
        if number > 1 and len(begins) != 1:
            problem = "both: leave one out" if begins else "neither"
            raise CallboardError(f"{what} begins either at 'steps' or 'when' a condition holds, and has {problem}")
        _ = stage.condition
        if stage.steps is not None:
            if stage.steps <= steps:
                raise CallboardError(
                    f"{what} begins at {stage.steps} steps, and one before it at {steps}: raise 'steps'"
                )
            steps = stage.steps


def depends_on_episodes(stages: Sequence[Stage]) -> bool:
    """Returns whether a stage begins by a metric of training episodes."""
    conditions = [stage.condition for stage in stages]
    return any(condition is not None and is_of_episodes(condition.metric) for condition in conditions)


def is_of_episodes(metric: str) -> bool:
    """Returns whether a metric is a mean over training episodes."""
    if metric.startswith(("evaluator/", "callbacks/")):
        return False
    # Those of single policies and agents end alike: `red/episode_return`, `red/score`.
    return metric.startswith("episode/") or metric.endswith(("/episode_return", "/score", "actor/episode_length"))
