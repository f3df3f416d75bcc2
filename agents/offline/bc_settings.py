"""Hyperparameters of behavioral cloning and of AWR."""

import dataclasses
from typing import Annotated

from annotated_types import Interval

from ...networks.network_settings import CoreSettings, HeadSettings, NetworkSettings
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval
from ..settings.optimizer_settings import OptimizerSettings
from ..settings.shared_settings import GaussianPolicySettings, ObservationSettings, RewardSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyNetworkSettings(HeadSettings, CoreSettings, NetworkSettings):
    """Settings of a network that outputs a policy.

    Attributes:
      head_sizes: further layers of the policy after torso and core.
      autoregressive: whether each part of an action of several parts is chosen by a network that sees the parts before
        it; otherwise they are independent of each other, given the observation.
      previous_inputs: whether the core, or the head without one, also sees the previous action and the previous reward.
      normalize_observations: whether observations are normalized to zero mean and unit variance, by running statistics
        of the observations in the learner's batches.  Byte images are not normalized.
    """

    head_sizes: tuple[PositiveInt, ...] = ()
    autoregressive: bool = False
    previous_inputs: bool = False
    normalize_observations: bool = True


@dataclasses.dataclass(frozen=True)
class BCSettings(ObservationSettings, GaussianPolicySettings):
    """Hyperparameters of behavioral cloning.

    Attributes:
      batch_size: sequences in a learner step, over all replicas.
      accumulate: batches in a learner step, whose gradients are averaged before the optimizer applies them, as if they
        were one larger batch that did not fit into memory.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).
      trace_length: transitions in a sequence; more than 1 for networks with a memory.
      period: timesteps between the starts of consecutive sequences.
      least_log_std: below this logarithm of its standard deviation, a Gaussian policy is learned by the squared error
        of its mean alone: the likelihood of actions without noise has no maximum.
      optimizer: see `OptimizerSettings`.
      replay: see `ReplaySettings`; its items are sequences.
      network: see `PolicyNetworkSettings`.
    """

    batch_size: PositiveInt = 256
    accumulate: PositiveInt = 1
    updates_per_call: PositiveInt = 1
    trace_length: PositiveInt = 1
    period: PositiveInt = 1
    least_log_std: Annotated[float, Interval(ge=-10, le=2)] = -2.0
    optimizer: OptimizerSettings = OptimizerSettings(
        learning_rate=1e-3, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None
    )
    replay: ReplaySettings = ReplaySettings(size=1_000_000, min_size=1000, samples_per_insert=256.0)
    network: PolicyNetworkSettings = PolicyNetworkSettings(hidden_sizes=(256, 256), activation="relu", lstm_size=256)


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
