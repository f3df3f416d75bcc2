"""Settings of agents that make several epochs over the newest data, which PPO and PQN share."""

import dataclasses

from ...settings.setting_types import NonNegativeInt, PositiveInt, UnitInterval
from .observation_settings import ObservationSettings
from .reward_settings import RewardSettings


@dataclasses.dataclass(frozen=True)
class IterationSettings(ObservationSettings, RewardSettings):
    """Settings of iterations over the newest data; agents' settings extend them.

    Attributes:
      unroll_length: transitions in a sequence (T).
      batch_size: sequences in an iteration, over all replicas; a multiple of the number of environments of all actors.
        With several agents in an environment, as many of each agent that the policy plays for.
      epochs: passes over the batch per iteration.
      minibatches: number of minibatches in an epoch, each with a gradient step.
      accumulate: minibatches in a gradient step, whose gradients are averaged, as if they were one larger minibatch
        that did not fit into memory.
      max_policy_lag: maximum age, in learner steps (iterations), of the weights that acted when learning from their
        data begins.  With 0 actors and learner alternate, as in the papers; higher values trade staleness for speed.
      discount: γ.
    """

    unroll_length: PositiveInt = 64
    batch_size: PositiveInt = 32
    epochs: PositiveInt = 10
    minibatches: PositiveInt = 32
    accumulate: PositiveInt = 1
    max_policy_lag: NonNegativeInt = 0
    discount: UnitInterval = 0.99

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if self.minibatches % self.accumulate:
            return f"minibatches must be a multiple of accumulate ({self.accumulate}), not {self.minibatches}"
        return super().problem
