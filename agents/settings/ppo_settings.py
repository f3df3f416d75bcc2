"""Hyperparameters of PPO and PQN."""

import dataclasses

from ...networks.network_settings import PolicyValueNetworkSettings, RecurrentQNetworkSettings
from ...settings.setting_types import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval
from ..schedules import ScheduledNonNegativeFloat, ScheduledPositiveFloat
from .bonus_settings import AdvantageBonusSettings
from .optimizer_settings import OptimizerSettings
from .shared_settings import ExplorationSettings, GaussianPolicySettings, IterationSettings


@dataclasses.dataclass(frozen=True)
class PqnSettings(IterationSettings, ExplorationSettings):
    """Hyperparameters of PQN.  docs/defaults.md compares all defaults with the paper's.

    Attributes:
      return_lambda: λ of the returns: 0 for one step, 1 for all steps of a sequence.
      normalize_rewards: see `RewardSettings`; not in the paper.
      optimizer: see `OptimizerSettings`.  The paper's is RAdam.  The learning rate changes from one iteration to the
        next.
      frame_stack: number of most recent images that the network sees; replay stores each image once.  4 in the paper.
      network: see `RecurrentQNetworkSettings`.  Without `layer_norm` learning may diverge: it takes the place of the
        target network.
    """

    unroll_length: PositiveInt = 32
    batch_size: PositiveInt = 32
    epochs: PositiveInt = 4
    minibatches: PositiveInt = 8
    return_lambda: UnitInterval = 0.65
    normalize_rewards: bool = True
    optimizer: OptimizerSettings = OptimizerSettings(
        learning_rate=5e-4, learning_rate_decay=True, epsilon=1e-5, max_gradient_norm=10.0
    )
    network: RecurrentQNetworkSettings = RecurrentQNetworkSettings(
        core="none",
        previous_inputs=False,
        hidden_sizes=(128, 128),
        activation="relu",
        layer_norm=True,
        lstm_size=128,
        dueling=False,
        stream_size=0,
    )


@dataclasses.dataclass(frozen=True)
class PpoSettings(IterationSettings, GaussianPolicySettings, AdvantageBonusSettings):
    """Hyperparameters of PPO.  Defaults are the paper's for MuJoCo (table 3) where it states one.

    The normalization of observations and rewards, learning rate decay and gradient clipping follow the authors' code
    (OpenAI Baselines).  docs/defaults.md compares all defaults with the papers'.

    Attributes:
      gae_lambda: λ of the advantages.
      clip: ε of the probability ratio, or a schedule of it.
      clip_decay: whether an ε that is a number decays linearly to 0, as the learning rate does.
      clip_value: whether the value loss is clipped too, so that it has no gradient once the value has moved by ε.
      entropy_cost: weight of the entropy bonus, or a schedule of it.
      value_cost: weight of the value loss.
      value_learning_rate_scale: learning rate of the layers that only the value has, relative to that of the optimizer:
        those of its head, and of its own torso and core if `network.shared` is false.
      normalize_advantages: whether advantages are standardized over the whole batch, and divided by at least a tenth of
        the deviation of the value's targets.  Other implementations standardize them in each minibatch.
      normalize_rewards: whether rewards are divided by the standard deviation of discounted returns, then clipped to
        [-10, 10].
      normalization_discount: γ of those returns; None for that of the agent.
      target_kl: mean KL divergence from the behavior policy over an epoch above which the iteration stops; None for no
        limit.  The mean includes the epoch's first minibatches, whose divergence is small, so the same number is a
        looser limit than where each minibatch is checked (Stable-Baselines3).
      optimizer: see `OptimizerSettings`.  The learning rate changes from one iteration to the next.
      frame_stack: number of most recent images that the network sees; replay stores each image once.  4 in the paper.
      network: see `PolicyValueNetworkSettings`.  Policy and value share `hidden_sizes`.
    """

    gae_lambda: UnitInterval = 0.95
    clip: ScheduledPositiveFloat = 0.2
    clip_decay: bool = False
    clip_value: bool = False
    entropy_cost: ScheduledNonNegativeFloat = 0.0
    value_cost: NonNegativeFloat = 0.5
    value_learning_rate_scale: PositiveFloat = 1.0
    normalize_advantages: bool = True
    normalize_rewards: bool = True
    target_kl: PositiveFloat | None = None
    optimizer: OptimizerSettings = OptimizerSettings(
        learning_rate=3e-4, learning_rate_decay=False, epsilon=1e-5, max_gradient_norm=0.5
    )
    network: PolicyValueNetworkSettings = PolicyValueNetworkSettings(
        hidden_sizes=(), activation="tanh", lstm_size=128, head_sizes=(64, 64)
    )
