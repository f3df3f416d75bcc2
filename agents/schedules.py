"""Schedules: settings that change with the progress of a run, such as a learning rate."""

import bisect
import dataclasses
import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Interval

from ..data import Layout
from ..errors import CallboardError
from ..settings.nested_settings import declared_fields
from ..settings.setting_types import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """A setting's value over the course of a run.

    In YAML and as an option it is a mapping: `{schedule: linear, start: 3e-4, end: 1e-5, steps: 1_000_000}`.

    Attributes:
      schedule: constant has the value start; linear and cosine change from start to end, the latter by half a period
        of a cosine; piecewise has the first of values until the first of boundaries, then the second, and so on.
      start: the value at step 0.
      end: the value from the last step on.
      steps: number of steps from start to end; None for those of the run, by max_steps or max_learner_steps.
      by: what is counted: environment_steps of all actors, or learner_steps.
      values: of piecewise, one more than boundaries.
      boundaries: of piecewise, increasing steps at which the next value begins.
    """

    description: ClassVar[str] = "a schedule such as {schedule: linear, start: 1e-3}"

    schedule: Literal["constant", "linear", "cosine", "piecewise"] = "linear"
    start: NonNegativeFloat | None = None
    end: NonNegativeFloat = 0.0
    steps: PositiveInt | None = None
    by: Literal["environment_steps", "learner_steps"] = "environment_steps"
    values: tuple[NonNegativeFloat, ...] = ()
    boundaries: tuple[PositiveInt, ...] = ()

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if self.schedule == "piecewise":
            if self.start is not None or self.steps is not None:
                return "a piecewise schedule has values and boundaries, not start and steps"
            if len(self.values) != len(self.boundaries) + 1:
                return (
                    f"a piecewise schedule needs one value more than boundaries, not {len(self.values)} values and "
                    f"{len(self.boundaries)} boundaries"
                )
            if list(self.boundaries) != sorted(set(self.boundaries)):
                return f"the boundaries of a piecewise schedule must increase, not be {list(self.boundaries)}"
            return ""
        if self.start is None:
            return f"a {self.schedule} schedule needs start, such as {{schedule: {self.schedule}, start: 1e-3}}"
        if self.values or self.boundaries:
            return f"a {self.schedule} schedule has start and end; values and boundaries are those of piecewise"
        return ""

    @property
    def numbers(self) -> tuple[float, ...]:
        """The values from which all others follow, which must be in the range of the setting."""
        if self.schedule == "piecewise":
            return self.values
        start = 0.0 if self.start is None else self.start
        return (start,) if self.schedule == "constant" else (start, self.end)

    def at(self, step: int, run_steps: int) -> float:
        """Returns the value at a step.

        Args:
          step: environment steps or learner steps so far.
          run_steps: those of the whole run, in place of `steps` if that is None.
        """
        if self.schedule == "piecewise":
            return self.values[bisect.bisect_right(self.boundaries, step)]
        assert self.start is not None
        if self.schedule == "constant":
            return self.start
        done = min(1.0, step / max(1, self.steps or run_steps))
        left = 1.0 - done if self.schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2
        return self.end + (self.start - self.end) * left


if TYPE_CHECKING:
    # In the copy of an agent that makes the learner these are variables, see `live_settings`.
    ScheduledPositiveFloat: TypeAlias = Any
    ScheduledNonNegativeFloat: TypeAlias = Any
    ScheduledUnitInterval: TypeAlias = Any
else:
    ScheduledPositiveFloat = PositiveFloat | Annotated[Schedule, Interval(ge=0)]
    """A positive number, or a schedule, which may end at 0."""
    ScheduledNonNegativeFloat = NonNegativeFloat | Annotated[Schedule, Interval(ge=0)]
    ScheduledUnitInterval = UnitInterval | Annotated[Schedule, Interval(ge=0, le=1)]


def schedules_of(agent: Any) -> dict[str, Schedule]:
    """Returns the schedules among an agent's settings, by names such as `optimizer.learning_rate`."""
    fields = declared_fields(agent)
    return {name: field.default for name, field in fields.items() if isinstance(field.default, Schedule)}


def check_schedules(agent: Any, layout: Layout, max_learner_steps: int | None) -> None:
    """Checks that an agent's schedules can be evaluated in a run.

    Raises:
      CallboardError: a schedule has no length, or several learners would evaluate it at different steps.
    """
    for name, schedule in schedules_of(agent).items():
        lasts = schedule.schedule in ("linear", "cosine")
        if schedule.by == "learner_steps" and lasts and schedule.steps is None and max_learner_steps is None:
            raise CallboardError(
                f"agent.{name} is a schedule by learner_steps without an end: set its steps, or max_learner_steps"
            )
        if schedule.by == "environment_steps" and schedule.schedule != "constant" and layout.learners > 1:
            raise CallboardError(
                f"agent.{name} is a schedule by environment_steps, which {layout.learners} learners learn of at "
                "different times: set its by to learner_steps"
            )
