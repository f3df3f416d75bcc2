"""How far a run may go: by its own limits, by those of its session, with enough actors, and once it ends."""

import math
from collections.abc import Callable
from threading import RLock
from typing import Any, ClassVar

from ....errors import counted
from ....runtime.deadlines import Clock, Deadline
from ...experiments.checked_run import Run
from ...experiments.parts.placement_part import EvaluationPart
from ...node_names import kind_of
from ..node import NodeContext
from ..reports.messages import ControlState, LeaseRequest
from ..reports.run_control import RunControl, Target
from ..reports.step_budget import StepBudget
from .counters import Counters
from .run_metrics import RunMetrics
from .stopping_rules import Stop, StoppingRules, finished_policies

_SILENT_SECONDS = 30.0
"""Time without a report after which an actor is not there; then its lease is given to others, too."""
_START_SECONDS = 15.0
"""Time for the first actors to start before the user is told that the run waits for them."""


class ActorQuorum:
    """Counts the actors that report.  Not thread-safe: called under the coordinator's lock.

    Args:
      least: number of actors below which the run waits; None if their number is fixed.
      notify: receives a line when the run begins to wait, and when it continues.
      clock: the clock; another one in tests.
    """

    def __init__(self, least: int | None, notify: Callable[[str], None], clock: Clock):
        self._least = least or 0
        self._notify = notify
        self._clock = clock
        self._heard: dict[str, float] = {}
        """When each actor reported last, in the order of these times."""
        self._start = Deadline(_START_SECONDS, clock)
        self._waits = False

    @property
    def counts(self) -> bool:
        """Whether actors come and go."""
        return bool(self._least)

    @property
    def present(self) -> int:
        """Number of actors that have reported lately."""
        while self._heard and self._clock() - next(iter(self._heard.values())) > _SILENT_SECONDS:
            del self._heard[next(iter(self._heard))]
        return len(self._heard)

    def hear(self, node: str) -> None:
        """Takes that a node has reported."""
        if self.counts and kind_of(node) == "actor":
            self._heard.pop(node, None)
            self._heard[node] = self._clock()

    def suffices(self) -> bool:
        """Returns whether there are enough actors, and notifies the user when that changes."""
        if not self.counts:
            return True
        present = self.present
        waits = present < self._least
        if waits and not self._waits and self._start.has_passed:
            self._waits = True
            self._notify(f"waits for actors: {present} of at least {self._least} are there")
        elif self._waits and not waits:
            self._waits = False
            self._notify(f"continues, with {counted(present, 'actor')}")
        return not waits


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


class RunLimits:
    """Decides when the run pauses and when it ends, and leases environment steps to actors until then.

    Args:
      run: the run.
      context: context of the coordinator, to which `stop` is sent.
      counters: the counters of the run, with those of its earlier coordinators alone.
      metrics: the newest metrics.
      control: the changes and the target of the session.
      clock: a monotonic clock.
      lock: the coordinator's lock.
    """

    served: ClassVar[tuple[str, ...]] = ("run_until", "request_stop")

    def __init__(
        self,
        run: Run,
        context: NodeContext,
        counters: Counters,
        metrics: RunMetrics,
        control: RunControl,
        clock: Clock,
        lock: RLock,
    ):
        self._max_steps = run.limits.max_steps
        self._policies = tuple(run.policies)
        self._context = context
        self._counters = counters
        self._metrics = metrics
        self._control = control
        self._clock = clock
        self._lock = lock
        begun = any(counters.totals.values())
        self.rules = StoppingRules(run.limits, counters.totals, clock, run.policies, run.evaluation.evaluation_episodes)
        self.ending = RunEnding(run.evaluation, context.notify, clock)
        self._budget = StepBudget(self._max_steps, run.experiment.acting_nodes, restarted=begun, now=clock())
        self.quorum = ActorQuorum(run.placement.min_actors, context.notify, clock)
        """Whether there are enough actors, where they come and go."""
        self._ends_paused = False
        """Whether the end was requested while the run was paused."""

    def run_until(self, environment_steps: float, learner_steps: float) -> None:
        """Lets the run continue until one of these totals, and then pauses it."""
        with self._lock:
            self._control.run_until(Target(environment_steps, learner_steps))
            self.update()

    def request_stop(self, reason: str) -> None:
        """Ends the run as at a limit, without a final evaluation; one that is paused makes no more steps."""
        with self._lock:
            self._ends_paused |= self.paused
            self.ending.request(reason)

    @property
    def stopping(self) -> bool:
        """Whether a limit was reached; after the limit of environment steps, the final evaluation still follows."""
        with self._lock:
            return bool(self.ending)

    @property
    def paused(self) -> bool:
        """Whether the run waits for its session."""
        with self._lock:
            return not self.ending and self._control.paused

    @property
    def at_rest(self) -> bool:
        """Whether no node makes a step before the session continues, provided that the run is paused."""
        return not self._budget.outstanding and self._control.learners_rest

    @property
    def steps_left(self) -> int:
        """Environment steps left until the limit or the next pause, by the newest reports; 0 once the run ends."""
        with self._lock:
            self.update()
            return 0 if self.ending else max(0, self._budget.limit - self._environment_steps)

    @property
    def finished(self) -> list[str]:
        """The policies whose learners have made their last step."""
        return finished_policies(self._policies, self._metrics.values)

    def control_state(self, policy: str = "") -> ControlState:
        """Returns what the nodes of a policy, or of the whole run, receive with their next reports."""
        with self._lock:
            # The last learner steps of a run that has reached a limit are not subject to a pause.
            is_free = self.ending and not self._ends_paused
            return self._control.state if is_free else self._control.state_for(policy)

    def lease(self, actor: str, incarnation_id: str, sequence: int, done: int, request: LeaseRequest) -> int:
        """Returns the new limit of an actor's lease; see `StepBudget.renew` for the arguments."""
        all_done = self._environment_steps
        limit = self._budget.renew(actor, incarnation_id, sequence, done, request, all_done, self._clock())
        return limit if self.quorum.suffices() and not self.ending else done

    def update(self) -> None:
        """Applies the limits of the run and of its session to the steps that are left."""
        self._control.update(self._environment_steps, self._counters.total("learner_steps"))
        self.rules.set_paused(self._control.paused)
        self._budget.limit = int(min(self._max_steps, self._control.environment_limit))

    def check_conditions(self, row: dict[str, Any]) -> None:
        """Ends the run if a condition of `stop_when` holds.

        Args:
          row: the newest values of all metrics.
        """
        self.ending.begin(self.rules.check_conditions(self._environment_steps, row))

    def decide(self) -> None:
        """Ends the run by any other rule, and stops its nodes once its last work is done."""
        if not self.ending:
            steps = self._environment_steps
            self.ending.begin(self.rules.check(steps, self._metrics.values, self._metrics.evaluation))
        learned = len(self.finished) == len(self._policies)
        if self.ending.stops_now(self._counters.total("learner_steps"), learned):
            self._context.send("stop", self.ending.reason)

    @property
    def _environment_steps(self) -> int:
        return self._counters.total("environment_steps")
