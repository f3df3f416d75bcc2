"""How far a run may go: by its own limits, by those of its session, and once it ends."""

from threading import RLock
from typing import Any, ClassVar

from ....deadlines import Clock
from ...experiments.checked_run import Run
from ..node import NodeContext
from ..reports.messages import ControlState, LeaseRequest
from ..reports.run_control import RunControl, Target
from ..reports.step_budget import StepBudget
from .actor_quorum import ActorQuorum
from .counters import Counters
from .run_ending import RunEnding
from .run_metrics import RunMetrics
from .stopping_rules import StoppingRules, finished_policies


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
