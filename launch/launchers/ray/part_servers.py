"""State that tasks on Ray share: the newest weights, and the progress of all tasks.

Nothing here needs TensorFlow, so that the processes of the Ray actors that `parts` makes of these classes stay small.
"""

import collections
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from ....agents.weights import Snapshot

_EPISODES = 100
_SILENCE_SECONDS = 60.0


class ParameterServer:
    """The newest weights of a learner, for all actors.

    After a restart it has none until the learner publishes again; actors continue with those that they have.
    """

    def __init__(self) -> None:
        self._incarnation = 0
        self._newest: Snapshot | None = None

    def begin(self) -> int:
        """Return the incarnation of a learner that starts now; its versions are newer than all earlier ones."""
        self._incarnation += 1
        return self._incarnation

    def publish(self, version: tuple[int, int], packed: "np.ndarray") -> None:
        """Store weights in the order of `Policy.variables`, unless they are older than the newest.

        Args:
          version: incarnation of the learner, and its step.
          packed: by `agents.weights.pack_weights`.
        """
        # A restarted server recovers the number of incarnations from the versions.
        self._incarnation = max(self._incarnation, version[0])
        if self._newest is None or tuple(version) >= self._newest[0]:
            self._newest = ((version[0], version[1]), packed)

    def get_variables(self, have: tuple[int, int] | None) -> "Snapshot | None":
        """Return the newest version and its values; None if `have` is that version, or if there are none yet."""
        if self._newest is None or (have is not None and tuple(have) == self._newest[0]):
            return None
        return self._newest


class Totals(NamedTuple):
    """The progress of all tasks together."""

    environment_steps: int
    learner_steps: int
    episodes: int
    """Number of episodes that have ended in rollouts."""
    episode_return: float | None
    """Mean over the newest 100 episodes; None before the first."""
    metrics: dict[str, float]
    """The learner's newest metrics."""
    stopping: bool


class Progress:
    """Sums up the work of rollouts and learners, and determines when they stop.

    Tasks report what they have done since they started, so a lost or repeated report does no harm.  A learner that has
    reported before and then is silent for a minute counts as dead, and all other tasks stop.

    Args:
      max_steps: environment steps of all rollouts after which they stop; None means that only `stop` ends them.
    """

    def __init__(self, max_steps: int | None = None):
        self._max_steps = max_steps
        self._steps: dict[str, int] = {}
        self._rollouts: dict[int, tuple[str, int]] = {}
        self._episodes = 0
        self._returns: collections.deque[float] = collections.deque(maxlen=_EPISODES)
        self._learner_steps = 0
        self._metrics: dict[str, float] = {}
        self._short_of_data = 0.0
        self._learner_heard: float | None = None
        self._learners: dict[int, tuple[str, str]] = {}
        self._met: dict[int, tuple[str, str]] = {}
        self._stopping = False
        self._learner_ended = False

    def report_rollout(self, identity: str, steps: int, returns: Sequence[float]) -> bool:
        """Process a rollout's report; return True if the rollout must stop.

        Args:
          identity: id of the task's incarnation, different at every start.
          steps: environment steps since that start.
          returns: returns of the episodes that have ended since the last report.
        """
        self._steps[identity] = steps
        self._episodes += len(returns)
        self._returns.extend(returns)
        if self._max_steps is not None and sum(self._steps.values()) >= self._max_steps:
            self._stopping = True
        return self._stopping or self.learning_has_ended()

    def begin_rollout(self, index: int, identity: str) -> int:
        """Return the number of earlier rollouts of an actor's index; a repeated call returns the same number.

        Args:
          index: index of the actor.
          identity: id of the task's incarnation, different at every start.
        """
        newest, number = self._rollouts.get(index, ("", -1))
        if newest != identity:
            number += 1
            self._rollouts[index] = identity, number
        return number

    def report_learner(self, steps: int, metrics: Mapping[str, float], short_of_data: float = 0.0) -> bool:
        """Process the first learner's report; return True if the learner must stop.

        Args:
          steps: learner steps so far.
          metrics: the newest metrics.
          short_of_data: seconds for which the learner has currently been waiting for a batch.
        """
        self._learner_steps, self._metrics, self._short_of_data = steps, dict(metrics), short_of_data
        self._learner_heard = time.monotonic()
        return self._stopping

    def seconds_short_of_data(self) -> float:
        """Return how long the first learner has been waiting for a batch, by its last report; 0 while it learns."""
        return self._short_of_data

    def meet(self, rank: int, identity: str, address: str, learners: int) -> list[str] | None:
        """Return the addresses of all learners, in the order of their ranks; None until all have registered.

        Args:
          rank: rank of the calling learner.
          identity: id of its incarnation, different at every start; restarted learners form a new group.
          address: the address at which it can be reached.
          learners: number of learners.
        """
        if self._met.get(rank) != (identity, address):
            self._learners[rank] = (identity, address)
            if len(self._learners) < learners:
                return None
            self._met, self._learners = self._learners, {}
        return [self._met[rank][1] for rank in range(learners)]

    def end_learning(self) -> None:
        """Record that the first learner has ended, after which the others cannot make a step."""
        self._learner_ended = True

    def learning_has_ended(self) -> bool:
        silent = self._learner_heard is not None and time.monotonic() - self._learner_heard > _SILENCE_SECONDS
        return self._learner_ended or silent

    def stop(self) -> None:
        """Stop all tasks."""
        self._stopping = True

    def totals(self) -> Totals:
        """Return the progress of all tasks together."""
        return Totals(
            environment_steps=sum(self._steps.values()),
            learner_steps=self._learner_steps,
            episodes=self._episodes,
            episode_return=sum(self._returns) / len(self._returns) if self._returns else None,
            metrics=self._metrics,
            stopping=self._stopping or self.learning_has_ended(),
        )
