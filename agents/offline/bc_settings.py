"""Hyperparameters of behavioral cloning."""

import dataclasses
from typing import Annotated

from annotated_types import Interval

from ...networks.network_settings import CoreSettings, HeadSettings, NetworkSettings
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import PositiveInt
from ..settings.optimizer_settings import OptimizerSettings
from ..settings.shared_settings import GaussianPolicySettings, ObservationSettings


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
