"""Hyperparameters of AWR."""

import dataclasses

from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval
from ..settings.optimizer_settings import OptimizerSettings
from ..settings.shared_settings import RewardSettings
from .bc_settings import BCSettings, PolicyNetworkSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class AWRNetworkSettings(PolicyNetworkSettings):
    """Settings of the networks of AWR.

    Attributes:
      shared: whether policy and value share torso and core; otherwise each has its own.
    """

    shared: bool = False

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if not self.shared and self.head is not None:
            return "a head of your own outputs policy and value together and needs shared: true"
        return super().problem


@dataclasses.dataclass(frozen=True)
class AWRSettings(RewardSettings, BCSettings):
    """Hyperparameters of AWR.

    Attributes:
      batch_size: sequences in a learner step, over all replicas.
      trace_length: transitions in a sequence, over which returns are computed.
      period: timesteps between the starts of consecutive sequences.
      discount: γ.
      trace_decay: λ of the returns: 0 for the next value alone, 1 for the rewards to the end of the sequence.
      temperature: β: the smaller, the more the better actions weigh.  In units of the standard deviation of the batch's
        advantages.
      largest_weight: the largest weight of an action.
      value_cost: weight of the value's loss.
      normalize_rewards: see `RewardSettings`.
      optimizer: see `OptimizerSettings`.
      replay: see `ReplaySettings`; its items are sequences.
      network: see `AWRNetworkSettings`.
    """

    batch_size: PositiveInt = 32
    trace_length: PositiveInt = 16
    period: PositiveInt = 16
    discount: UnitInterval = 0.99
    trace_decay: UnitInterval = 0.95
    temperature: PositiveFloat = 1.0
    largest_weight: PositiveFloat = 20.0
    value_cost: NonNegativeFloat = 0.5
    normalize_rewards: bool = True
    optimizer: OptimizerSettings = OptimizerSettings(
        learning_rate=3e-4, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None
    )
    replay: ReplaySettings = ReplaySettings(size=100_000, min_size=100, samples_per_insert=32.0)
    network: AWRNetworkSettings = AWRNetworkSettings(hidden_sizes=(256, 256), activation="relu", lstm_size=256)
