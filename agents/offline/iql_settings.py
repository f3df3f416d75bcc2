"""Hyperparameters of IQL."""

import dataclasses
from typing import Annotated

from annotated_types import Interval

from ...networks.network_settings import NetworkSettings
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval
from ..settings.optimizer_settings import OptimizerSettings
from ..settings.shared_settings import GaussianPolicySettings, ObservationSettings, RewardSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class IQLNetworkSettings(NetworkSettings):
    """Settings of policy, value and critics, each of which has a network of its own.

    Attributes:
      hidden_sizes: layers of the policy and of the value, and of each critic on the torso's features and the action.
      autoregressive: whether each part of an action of several parts is chosen by a network that sees the parts before
        it; otherwise they are independent of each other, given the observation.
      normalize_observations: whether observations are normalized to zero mean and unit variance, by running statistics
        of the observations in the learner's batches.  Byte images are not normalized.
    """

    autoregressive: bool = False
    normalize_observations: bool = True


@dataclasses.dataclass(frozen=True)
class IQLSettings(ObservationSettings, RewardSettings, GaussianPolicySettings):
    """Hyperparameters of IQL.  Defaults are the paper's for MuJoCo (appendix B) where it states one.

    Attributes:
      batch_size: transitions in a learner step, over all replicas.
      accumulate: batches in a learner step, whose gradients are averaged before the optimizer applies them, as if they
        were one larger batch that did not fit into memory.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).
      discount: γ.
      expectile: τ of the value: 0.5 for the mean over recorded actions, towards 1 for the best of them.
      inverse_temperature: β: the larger, the more the better actions weigh in the policy's loss; 0 for all alike.  It
        has the unit of 1 / advantage: returns that span about 1000 suit the default, as the paper scales them.
      largest_weight: the largest weight of an action.
      target_update_rate: fraction of the distance to the critics that their targets move in a learner step.
      least_log_std: lower bound of the logarithm of a Gaussian policy's standard deviation.
      optimizer: of policy, value and critics, see `OptimizerSettings`.
      replay: see `ReplaySettings`; its items are transitions.
      network: see `IQLNetworkSettings`.
    """

    batch_size: PositiveInt = 256
    accumulate: PositiveInt = 1
    updates_per_call: PositiveInt = 1
    discount: UnitInterval = 0.99
    expectile: Annotated[float, Interval(gt=0, lt=1)] = 0.7
    inverse_temperature: NonNegativeFloat = 3.0
    largest_weight: PositiveFloat = 100.0
    target_update_rate: Annotated[float, Interval(gt=0, le=1)] = 0.005
    least_log_std: Annotated[float, Interval(ge=-10, le=2)] = -5.0
    optimizer: OptimizerSettings = OptimizerSettings(
        learning_rate=3e-4, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None
    )
    replay: ReplaySettings = ReplaySettings(size=1_000_000, min_size=10_000, samples_per_insert=256.0)
    network: IQLNetworkSettings = IQLNetworkSettings(hidden_sizes=(256, 256), activation="relu")
