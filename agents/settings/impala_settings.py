"""Hyperparameters of IMPALA and APPO."""

import dataclasses

from ...networks.network_settings import PolicyValueNetworkSettings
from ...settings.setting_types import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval
from ..schedules import ScheduledNonNegativeFloat, ScheduledPositiveFloat
from .bonus_settings import AdvantageBonusSettings
from .optimizer_settings import OptimizerSettings
from .shared_settings import GaussianPolicySettings, ObservationSettings, RewardSettings


@dataclasses.dataclass(frozen=True)
class ImpalaSettings(ObservationSettings, RewardSettings, GaussianPolicySettings, AdvantageBonusSettings):
    """Hyperparameters of IMPALA.  Defaults are the paper's for Atari (table G.1) if they do not depend on the scale of
    rewards: those are normalized instead of clipped, the optimizer is Adam, sequences are shorter and batches smaller.

    The loss is a sum over time and batch, as in the paper.  The optimizer's `max_gradient_norm` and `epsilon` apply to
    gradients of this sum, so their effect depends on `unroll_length` and `batch_size`.  The recipe `impala-atari` has
    all of the paper's settings.  docs/defaults.md compares all defaults with the papers'.

    Attributes:
      unroll_length: transitions in a sequence (T), over which a recurrent network learns to remember.  20 in the paper.
      batch_size: sequences in a learner step, over all replicas.  32 in the paper.
      accumulate: batches in a learner step, whose gradients are added before the optimizer applies them, as if they
        were one larger batch that did not fit into memory.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).
      queue_batches: maximum number of batches in the queue; a longer queue means older behavior policies.
      discount: γ.
      entropy_cost: weight of the entropy bonus, or a schedule of it.
      baseline_cost: weight of the value loss.
      value_learning_rate_scale: learning rate of the layers that only the value has, relative to that of the optimizer:
        those of its head, and of its own torso and core if `network.shared` is false.
      clip_rho: ρ-bar, upper bound of the importance weights in the V-trace targets.
      clip_c: c-bar, upper bound of the trace coefficients.
      clip_policy_gradient_rho: upper bound of the importance weights in the policy gradient.
      lambda_: λ of the trace coefficients; targets vary less below 1, which the paper has.
      reward_clip: rewards are clipped to [-reward_clip, reward_clip], or to a range such as [-1, 5]; None disables
        clipping.  The paper clips Atari rewards to [-1, 1], which would change other tasks.
      normalize_rewards: see `RewardSettings`; not in the paper.
      optimizer: see `OptimizerSettings`.  `epsilon` and `max_gradient_norm` are 1e-5 and 0.5 for the mean over 160
        transitions.  The paper's is RMSProp.
      frame_stack: number of most recent images that the network sees; replay stores each image once.  4 in the paper.
      network: see `PolicyValueNetworkSettings`.  The paper's LSTM also sees the previous action and reward
        (`previous_inputs`).
    """

    unroll_length: PositiveInt = 10
    batch_size: PositiveInt = 16
    accumulate: PositiveInt = 1
    updates_per_call: PositiveInt = 1
    queue_batches: PositiveInt = 1
    discount: UnitInterval = 0.99
    entropy_cost: ScheduledNonNegativeFloat = 0.003
    baseline_cost: NonNegativeFloat = 0.5
    value_learning_rate_scale: PositiveFloat = 1.0
    clip_rho: PositiveFloat = 1.0
    clip_c: PositiveFloat = 1.0
    clip_policy_gradient_rho: PositiveFloat = 1.0
    lambda_: UnitInterval = 0.95
    normalize_rewards: bool = True
    optimizer: OptimizerSettings = OptimizerSettings(
        name="adam", learning_rate=4e-4, epsilon=1.6e-3, max_gradient_norm=80.0
    )
    network: PolicyValueNetworkSettings = PolicyValueNetworkSettings(
        hidden_sizes=(), activation="tanh", lstm_size=256, head_sizes=(256, 256)
    )


@dataclasses.dataclass(frozen=True)
class AppoSettings(ImpalaSettings):
    """Hyperparameters of APPO: IMPALA's, and the range of the clipped ratio.

    docs/defaults.md compares the defaults with those of other implementations.

    Attributes:
      clip: ε of the ratio of the policy to the one that acted, beyond which an advantage has no gradient; or a
        schedule of it.
      clip_policy_gradient_rho: not used; the ratio in the policy's loss is limited by `clip`.
    """

    clip: ScheduledPositiveFloat = 0.2
