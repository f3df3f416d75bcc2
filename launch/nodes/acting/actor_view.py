"""Shows an actor to a function of the user."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....agents.agent import Policy
from ....errors import CallboardError, unknown
from ...run_directory.policy_weights import weights_by_name


@dataclasses.dataclass(frozen=True)
class ActorView:
    """An actor between two steps, see `Session.for_each_actor`.

    Attributes:
      index: index of the actor.
      first_slot: slot of its first environment.
      environment_steps: actions that it has executed since it was started.
      weights_step: learner step of its weights; None if an inference node has them, or if it has several policies.
      environments: its environments, of the library that they are from; one object if they step as one.
      policies: what acts here, by the name of the policy; the name is empty if the run has one policy.  Empty with
        central inference.
    """

    index: int
    first_slot: int
    environment_steps: int
    weights_step: int | None
    environments: Sequence[Any]
    policies: Mapping[str, Policy]

    def weights(self, policy: str = "") -> dict[str, np.ndarray]:
        """Returns copies of the weights that the actor acts with, by name, as `Session.get_weights` names them.

        Raises:
          CallboardError: no policy of this name acts here.
        """
        if not self.policies:
            raise CallboardError("the actor has no weights: an inference node acts for it")
        if policy not in self.policies:
            raise unknown("policy", policy, self.policies)
        return weights_by_name(self.policies[policy])
