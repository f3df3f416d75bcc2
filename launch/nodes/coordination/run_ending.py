"""The end of a run: why it ends, and the last learner steps and the evaluation of its final policy before that."""

import math
from collections.abc import Callable

from ....deadlines import Clock
from ....errors import counted
from ...experiments.parts.evaluation_part import EvaluationPart
from .stopping_rules import Stop

_LAST_WEIGHTS_SECONDS = 120.0
"""Extra time for the final evaluation: the learner first finishes its last step, which may be long."""
_EVALUATOR_SILENT_SECONDS = 60.0
"""Silence of the evaluator after which the run ends without the final evaluation."""
_LEARNER_SILENT_SECONDS = 120.0
"""Time without a learner step after which the run ends without the remaining ones."""
_SHORT_SECONDS = 3.0
"""Time that learners may need to catch up before the user is notified."""


class RunEnding:
    """Whether the run is ending, and when its nodes may stop.  Not thread-safe.

    Args:
      evaluation: the settings of evaluations.
      notify: sends a line of text to the user.
      clock: a monotonic clock; another one in tests.
    """

    def __init__(self, evaluation: EvaluationPart, notify: Callable[[str], None], clock: Clock):
        self.reason = ""
        """Why the run ends; empty while it continues."""
        self._evaluation = evaluation
        self._notify = notify
        self._clock = clock
        self._is_evaluated = not evaluation.evaluator
        self._deadline = math.inf
        self._evaluator_heard = -math.inf
        self._catches_up = False
        self._catching_up_since = self._learner_heard = -math.inf
        self._learner_steps = -1
        self._notified = False
        self._stopped = False

    def __bool__(self) -> bool:
        """Whether the run is ending."""
        return bool(self.reason)

    def begin(self, stop: Stop | None) -> None:
        """Ends the run if there is a reason, after a final evaluation if that is still of use."""
        if stop is None:
            return
        self.reason = stop.reason
        self._catches_up = stop.learners_catch_up
        self._catching_up_since = self._learner_heard = now = self._clock()
        if not stop.final_evaluation:
            self._is_evaluated = True
        if not self._is_evaluated:
            self._evaluator_heard = now
            self._deadline = now + self._evaluation.evaluation_timeout + _LAST_WEIGHTS_SECONDS
            episodes = counted(self._evaluation.evaluation_episodes, "episode")
            self._notify(f"{self.reason}; evaluating the final policy over {episodes}")

    def request(self, reason: str) -> None:
        """Ends the run as at a limit, without a final evaluation, also one that has begun."""
        self.reason = self.reason or reason
        self._is_evaluated = True
        self._catches_up = False

    def hear_evaluator(self) -> None:
        """Notes that the evaluator has reported."""
        self._evaluator_heard = self._clock()

    def finish_evaluation(self) -> None:
        """Notes that the final policy, that of the last learner step, was evaluated."""
        self._is_evaluated = True
        self._catches_up = False

    def stops_now(self, learner_steps: int, learned: bool) -> bool:
        """Returns whether the nodes are to stop now; True once.

        Args:
          learner_steps: of the whole run.
          learned: whether all learners have made their last step.
        """
        if not self or self._stopped or (self._catches_up and not self._has_caught_up(learner_steps, learned)):
            return False
        late = not self._is_evaluated and self._clock() > min(
            self._deadline, self._evaluator_heard + _EVALUATOR_SILENT_SECONDS
        )
        if late:
            self._notify("the final policy was not evaluated in time")
        self._stopped = self._is_evaluated or late
        return self._stopped

    def _has_caught_up(self, learner_steps: int, learned: bool) -> bool:
        now = self._clock()
        if learner_steps != self._learner_steps:
            self._learner_steps, self._learner_heard = learner_steps, now
        if not learned and not self._notified and now > self._catching_up_since + _SHORT_SECONDS:
            self._notified = True
            self._notify("the learner makes the steps that are left for these environment steps")
        silent = now > self._learner_heard + _LEARNER_SILENT_SECONDS
        if silent and not learned:
            self._notify(f"the learner has made no step for {_LEARNER_SILENT_SECONDS:.0f} s: it is left behind")
        if learned or silent:
            self._catches_up = False
            self._evaluator_heard = now
            self._deadline = now + self._evaluation.evaluation_timeout + _LAST_WEIGHTS_SECONDS
        return not self._catches_up
