"""Hyperparameters of A2C and A3C."""

import dataclasses

from ...networks.network_settings import PolicyValueNetworkSettings
from ...settings.setting_types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, UnitInterval
from ..schedules import ScheduledNonNegativeFloat
from .bonus_settings import AdvantageBonusSettings
from .optimizer_settings import OptimizerSettings
from .shared_settings import GaussianPolicySettings, ObservationSettings, RewardSettings


@dataclasses.dataclass(frozen=True)
class AdvantageSettings(ObservationSettings, RewardSettings, GaussianPolicySettings):
    """Hyperparameters of A2C and A3C.  Defaults are those that learn on rewards of any scale, where the A3C paper's
    (sections 4 and 8) do not.

    The loss is a mean over time and batch, and the gradients are clipped, as in the synchronous implementation of
    OpenAI Baselines.  docs/defaults.md compares all defaults with the paper's.

    Attributes:
      unroll_length: transitions in a sequence (t_max).
      discount: γ.
      gae_lambda: λ of the advantages; the paper's is 1, for returns of up to t_max steps.
      entropy_cost: weight of the entropy bonus (β), or a schedule of it.
      value_cost: weight of the value loss.
      value_learning_rate_scale: learning rate of the layers that only the value has, relative to that of the optimizer:
        those of its head, and of its own torso and core if `network.shared` is false.
      normalize_advantages: whether advantages are standardized over the batch, as in PPO; not in the paper.
      reward_clip: rewards are clipped to [-reward_clip, reward_clip], or to a range such as [-1, 5]; None disables
        clipping.  The paper clips Atari rewards to [-1, 1], which would change other tasks.
      std_from_observation: whether the standard deviation of a Gaussian policy depends on the observation, as in the
        paper (section 9).
      normalize_rewards: see `RewardSettings`; not in the paper.
      optimizer: see `OptimizerSettings`.  The paper's is RMSProp, with learning rates sampled from 1e-4 to 1e-2.
      frame_stack: number of most recent images that the network sees; replay stores each image once.  4 in the paper.
      network: see `PolicyValueNetworkSettings`.  Policy and value share `hidden_sizes`; the paper's policies for
        continuous actions share nothing.
    """

    unroll_length: PositiveInt = 5
    discount: UnitInterval = 0.99
    gae_lambda: UnitInterval = 0.95
    entropy_cost: ScheduledNonNegativeFloat = 0.003
    value_cost: NonNegativeFloat = 0.5
    value_learning_rate_scale: PositiveFloat = 1.0
    normalize_advantages: bool = False
    normalize_rewards: bool = True
    optimizer: OptimizerSettings = OptimizerSettings(
        name="adam", learning_rate=3e-4, learning_rate_decay=False, epsilon=1e-5, max_gradient_norm=0.5
    )
    network: PolicyValueNetworkSettings = PolicyValueNetworkSettings(
        hidden_sizes=(), activation="tanh", lstm_size=128, head_sizes=(256, 256)
    )


@dataclasses.dataclass(frozen=True)
class A2CSettings(AdvantageSettings, AdvantageBonusSettings):
    """Hyperparameters of A2C.

    Attributes:
      batch_size: sequences in a learner step, over all replicas; a multiple of the number of all environments.  With
        several agents in an environment, as many of each agent that the policy plays for.
      accumulate: batches in a learner step, whose gradients are averaged before the optimizer applies them, as if they
        were one larger batch that did not fit into memory.
      max_policy_lag: maximum age, in learner steps, of the weights that acted when their data is learned from.  With 0
        actors and learner alternate, which is A2C; higher values trade staleness for speed, without a correction.
    """

    batch_size: PositiveInt = 32
    accumulate: PositiveInt = 1
    max_policy_lag: NonNegativeInt = 0


@dataclasses.dataclass(frozen=True)
class A3CSettings(AdvantageSettings):
    """Hyperparameters of A3C; an actor is one of the paper's workers, with a batch of environments.

    Attributes:
      waiting_gradients: gradients that may wait for the learner, at least 3; actors wait while there are as many.  More
        of them are older when they are applied.
    """

    waiting_gradients: PositiveInt = 3
