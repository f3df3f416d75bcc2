"""The limits of a run: when it ends."""

import dataclasses

from ....settings.setting_types import FiniteFloat
from .quantities import EnvironmentCount, Seconds, StepCount


@dataclasses.dataclass(frozen=True)
class LimitsPart:
    """The limits of a run: when it ends.

    Attributes:
      max_steps: environment steps after which the run ends; it exceeds them by less than one timestep of every actor.
      max_learner_steps: learner steps after which the run ends, exactly, see docs/stopping.md; a multiple of the
        agent's `updates_per_call`, where it has that.  None for no limit.
      max_seconds: seconds after which the run ends, counted over all resumes while its coordinator runs; the final
        evaluation and the last checkpoint come after them.  None for no limit.
      stop_return: the run ends once an evaluation's mean return reaches this value; None for never.
      stop_when: conditions, any of which ends the run: `METRIC >= NUMBER`, or with `>`, `<=`, `<`; a list, or separated
        by commas.  docs/metrics.md lists the metrics.
      patience: the run ends once this many evaluations in a row had no higher mean return than the best before them;
        None for never.
    """

    max_steps: StepCount = 1_000_000
    max_learner_steps: StepCount | None = None
    max_seconds: Seconds | None = None
    stop_return: FiniteFloat | None = None
    stop_when: str | tuple[str, ...] = ()
    patience: EnvironmentCount | None = None
