"""What tasks on Ray share: the newest weights, and how far they have come.

Nothing here needs TensorFlow, so that the processes of the Ray actors that `ray_parts` makes of this stay small.
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
    """The newest weights of a learner, for all who act with them.

    Where it is restarted it has none until the learner publishes again; actors go on with those they have.
    """

    def __init__(self) -> None:
        self._incarnation = 0
        self._newest: Snapshot | None = None

    def begin(self) -> int:
        """The incarnation of a learner that begins now: its versions are newer than all before."""
        self._incarnation += 1
        return self._incarnation

    def publish(self, version: tuple[int, int], packed: "np.ndarray") -> None:
        """Takes weights in the order of `Policy.variables`; those older than the newest are left aside.

        Args:
          version: incarnation of the learner, and its step.
          packed: by `agents.weights.pack_weights`.
        """
        # A server that was restarted learns again which incarnations there were.
        self._incarnation = max(self._incarnation, version[0])
        if self._newest is None or tuple(version) >= self._newest[0]:
            self._newest = ((version[0], version[1]), packed)

    def get_variables(self, have: tuple[int, int] | None) -> "Snapshot | None":
        """The newest version and its values; None if `have` is that version, or there are none yet."""
        if self._newest is None or (have is not None and tuple(have) == self._newest[0]):
            return None
        return self._newest


class Totals(NamedTuple):
    """How far all tasks together have come."""

    environment_steps: int
    learner_steps: int
    episodes: int
    """That rollouts have ended."""
    episode_return: float | None
    """Mean over the newest 100 of them; None before the first."""
    metrics: dict[str, float]
    """The learner's newest."""
    stopping: bool


class Progress:
    """Adds up what rollouts and learners have done, and tells them when to stop.

    Tasks report what they have done since they started, so a report that is lost, or comes twice, does no harm.  A
    learner that has reported, and then does not for a minute, has died: all others stop.

    Args:
      max_steps: environment steps of all rollouts after which they shall stop; None leaves it to `stop`.
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
        """Takes a rollout's report; True if it shall stop.

        Args:
          identity: different at every start of a task.
          steps: environment steps since that start.
          returns: of the episodes that have ended since the last report.
        """
        self._steps[identity] = steps
        self._episodes += len(returns)
        self._returns.extend(returns)
        if self._max_steps is not None and sum(self._steps.values()) >= self._max_steps:
            self._stopping = True
        return self._stopping or self.learning_has_ended()

    def begin_rollout(self, index: int, identity: str) -> int:
        """The number of earlier rollouts of an actor's index; a call that comes twice gives the same number.

        Args:
          index: of the actor.
          identity: different at every start of a task.
        """
        newest, number = self._rollouts.get(index, ("", -1))
        if newest != identity:
            number += 1
            self._rollouts[index] = identity, number
        return number

    def report_learner(self, steps: int, metrics: Mapping[str, float], short_of_data: float = 0.0) -> bool:
        """Takes the first learner's report; True if it shall stop.

        Args:
          steps: so far.
          metrics: the newest.
          short_of_data: seconds for which it has been waiting for a batch by now.
        """
        self._learner_steps, self._metrics, self._short_of_data = steps, dict(metrics), short_of_data
        self._learner_heard = time.monotonic()
        return self._stopping

    def seconds_short_of_data(self) -> float:
        """How long the first learner has been waiting for a batch, as it has reported; 0 while it learns."""
        return self._short_of_data

    def meet(self, rank: int, identity: str, address: str, learners: int) -> list[str] | None:
        """Where all learners can be reached by each other, in the order of their ranks; None until all have come.

        Args:
          rank: of the learner that asks.
          identity: different at every start of it; those who come after a meeting have one of their own.
          address: where it can be reached.
          learners: how many there are.
        """
        if self._met.get(rank) != (identity, address):
            self._learners[rank] = (identity, address)
            if len(self._learners) < learners:
                return None
            self._met, self._learners = self._learners, {}
        return [self._met[rank][1] for rank in range(learners)]

    def end_learning(self) -> None:
        """The first learner has ended: no other can make a step any more."""
        self._learner_ended = True

    def learning_has_ended(self) -> bool:
        silent = self._learner_heard is not None and time.monotonic() - self._learner_heard > _SILENCE_SECONDS
        return self._learner_ended or silent

    def stop(self) -> None:
        """All tasks shall stop."""
        self._stopping = True

    def totals(self) -> Totals:
        """How far all tasks together have come."""
        return Totals(
            environment_steps=sum(self._steps.values()),
            learner_steps=self._learner_steps,
            episodes=self._episodes,
            episode_return=sum(self._returns) / len(self._returns) if self._returns else None,
            metrics=self._metrics,
            stopping=self._stopping or self.learning_has_ended(),
        )
