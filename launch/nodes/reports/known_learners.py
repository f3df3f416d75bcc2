"""Knows of the learners of a policy for how long they are short of data, and whether they have finished."""

from typing import Protocol

from .messages import RunState


class Informed(Protocol):
    """Receives the coordinator's answers, as a `Reporter` does."""

    state: RunState


class KnownLearners:
    """The learners of a policy at the coordinator's last answer.

    Args:
      informed: has that answer.
      policy: name of the policy; empty if the run has one policy.
      while_others_learn: whether they count as finished only until the run ends, as it does once all have finished.
    """

    def __init__(self, informed: Informed, policy: str, while_others_learn: bool = False):
        self._informed = informed
        self._policy = policy
        self._label = f"learner/{policy}" if policy else "learner"
        self._while_others_learn = while_others_learn

    @property
    def have_finished(self) -> bool:
        """Whether the learners have made their last step: nothing takes data from replay any more."""
        state = self._informed.state
        return self._policy in state.finished and not (self._while_others_learn and state.stopping)

    def short_of_data(self, rank: int) -> float:
        """Returns the seconds for which the learner of this rank had been waiting for data."""
        return self._informed.state.short_of_data.get(f"{self._label}/{rank}", 0.0)
