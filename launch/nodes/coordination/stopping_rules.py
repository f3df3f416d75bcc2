"""The rules that end a run: limits of steps and time, goals of metrics, and patience with the evaluations."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ....environments import ONLY_AGENT
from ....errors import counted, rounded
from ....runtime.deadlines import Clock
from ...experiments.parts.placement_part import EvaluationPart, LimitsPart
from ...experiments.stop_conditions import parse_conditions, reaches
from ...node_names import metric_of

LEARNER_IS_DONE = "learner/final"
"""The value that the first learner reports once it has made its last step and published the final weights."""
_SECONDS = "seconds"
_EVALUATIONS = "evaluations"
_BEST_EVALUATION = "best_evaluation"


def finished_policies(policies: Iterable[str], values: Mapping[str, float]) -> list[str]:
    """Returns the policies whose learners have made their last step.

    Args:
      policies: names of those that learn; one without a name if the run has one policy.
      values: the newest values that nodes have reported.
    """
    return [policy for policy in policies if values.get(metric_of(policy, LEARNER_IS_DONE))]


_ENDINGS = {
    "max_steps": r"reached max_steps \(.*",
    "max_learner_steps": r"reached max_learner_steps \(.*",
    "max_seconds": r"reached max_seconds \(.*",
    "stop_return": r"the return .* has reached .*",
    "patience": r"patience is over: .*",
    "stop_when": r"\S+ is .*, and .* was to end the run, .*",
}
"""The form of the reasons of `StoppingRules`, by the setting that ends the run."""


def setting_that_ended(reason: str) -> str | None:
    """Returns the setting that ended a run for a reason, such as `max_steps`; None if it was none."""
    return next((name for name, form in _ENDINGS.items() if re.fullmatch(form, reason)), None)


class Stop(NamedTuple):
    """Why a run ends."""

    reason: str
    final_evaluation: bool
    """Whether the final policy is still to be evaluated; not if an evaluation has ended the run."""
    learners_catch_up: bool = False
    """Whether learners first make all steps that their settings promise for the environment steps made."""


class StoppingRules:
    """Decides when a run ends.

    Args:
      limits: the limits.
      totals: the counts that `counts` of earlier incarnations of the coordinator has left in the run's counters: a
        resumed or restarted run continues to count its seconds and its evaluations.
      clock: a monotonic clock; another one in tests.
      policies: names of the policies that learn.
      episodes: number of episodes of an evaluation.
    """

    def __init__(
        self,
        limits: LimitsPart,
        totals: Mapping[str, int],
        clock: Clock,
        policies: Iterable[str] = (ONLY_AGENT,),
        episodes: int = EvaluationPart.evaluation_episodes,
    ):
        self._policies = tuple(policies)
        self._limits, self._episodes = limits, episodes
        self._clock = clock
        self._ran = 0.0
        self._ran_until = clock()
        self._paused = False
        self._past = {name: totals.get(name, 0) for name in (_SECONDS, _EVALUATIONS, _BEST_EVALUATION)}
        self._evaluations = self._past[_EVALUATIONS]
        self._best_evaluation = self._past[_BEST_EVALUATION]
        self._best_return = -math.inf
        self._conditions = parse_conditions(limits.stop_when)

    @property
    def seconds(self) -> float:
        """Seconds for which the run has been running, over all its resumes, without pauses."""
        return self._past[_SECONDS] + self._seconds_here()

    @property
    def out_of_time(self) -> bool:
        """Whether `max_seconds` have passed."""
        return self.seconds_left == 0

    @property
    def seconds_left(self) -> float | None:
        """Seconds left until `max_seconds`; None without that limit."""
        limit = self._limits.max_seconds
        return None if limit is None else max(0.0, limit - self.seconds)

    @property
    def has_conditions(self) -> bool:
        """Whether `check_conditions` has anything to check."""
        return bool(self._conditions)

    def counts(self) -> dict[str, int]:
        """Returns counts of this incarnation to keep with the run's counters; they never decrease."""
        return {
            _SECONDS: int(self._seconds_here()),
            _EVALUATIONS: self._evaluations - self._past[_EVALUATIONS],
            _BEST_EVALUATION: self._best_evaluation - self._past[_BEST_EVALUATION],
        }

    def set_paused(self, paused: bool) -> None:
        """Takes whether the run is paused by its session; that time does not count."""
        self._ran, self._ran_until, self._paused = self._seconds_here(), self._clock(), paused

    def add_evaluation(self, evaluation: Mapping[str, float]) -> None:
        """Counts an evaluation, for `patience`; an improvement is a return higher than all before it."""
        value = evaluation["evaluator/return"]
        self._evaluations += 1
        # The evaluator knows the best return of the whole run, including this evaluation.
        best = evaluation.get("evaluator/best_return", value)
        if value > self._best_return and value >= best:
            self._best_evaluation = self._evaluations
        self._best_return = max(self._best_return, best)

    def check(
        self, environment_steps: int, values: Mapping[str, float], evaluation: Mapping[str, float]
    ) -> Stop | None:
        """Returns why the run ends now, by any rule but `stop_when`; None if it continues.

        Args:
          environment_steps: of the whole run.
          values: the newest values that nodes have reported.
          evaluation: the newest evaluation; empty before the first.
        """
        limits = self._limits
        mean = evaluation.get("evaluator/return")
        if limits.stop_return is not None and mean is not None and reaches(mean, limits.stop_return):
            return Stop(
                f"the return {rounded(mean)}, a mean over {counted(self._episodes, 'episode')}, "
                f"has reached {limits.stop_return:g} within {environment_steps:,} environment steps",
                final_evaluation=False,
            )
        without = self._evaluations - self._best_evaluation
        if limits.patience is not None and without >= limits.patience:
            return Stop(
                f"patience is over: the last {without} evaluations were no better than the one before them, "
                f"within {environment_steps:,} environment steps",
                final_evaluation=False,
            )
        if environment_steps >= limits.max_steps:
            reason = f"reached max_steps ({environment_steps:,} environment steps)"
            return Stop(reason, final_evaluation=True, learners_catch_up=True)
        if len(finished_policies(self._policies, values)) == len(self._policies):
            return Stop(self._learner_reason(values), final_evaluation=True)
        if self.out_of_time:
            reason = f"reached max_seconds ({self.seconds:,.0f} s, {environment_steps:,} environment steps)"
            return Stop(reason, final_evaluation=True)
        return None

    def check_conditions(self, environment_steps: int, metrics: Mapping[str, float]) -> Stop | None:
        """Returns why the run ends now, by `stop_when`; None if it continues.

        Args:
          environment_steps: of the whole run.
          metrics: the newest values of all metrics.
        """
        for condition in self._conditions:
            if condition.holds(metrics):
                return Stop(
                    f"{condition.metric} is {metrics[condition.metric]:g}, and {condition} was to end the run, within "
                    f"{environment_steps:,} environment steps",
                    final_evaluation=not condition.metric.startswith("evaluator/"),
                )
        return None

    def _seconds_here(self) -> float:
        return self._ran + (0.0 if self._paused else self._clock() - self._ran_until)

    def _learner_reason(self, values: Mapping[str, float]) -> str:
        limit = self._limits.max_learner_steps
        step = min(values.get(metric_of(policy, "learner/step"), 0) for policy in self._policies)
        if limit is not None and step >= limit:
            return f"reached max_learner_steps ({step:,.0f} learner steps)"
        # Only a restarted coordinator does not know why.
        return f"the run was ending when the coordinator was restarted ({step:,.0f} learner steps)"
