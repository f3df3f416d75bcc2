"""Hyperparameters of TD3 and TD3+BC."""

import dataclasses
from typing import Annotated

from annotated_types import Interval

from ...networks.network_settings import ActorCriticSettings, CriticSettings
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval
from .optimizer_settings import OptimizerSettings
from .shared_settings import BoundedActionSettings, ObservationSettings, RewardSettings

_ADAM = OptimizerSettings(learning_rate=3e-4, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None)


@dataclasses.dataclass(frozen=True)
class TD3Settings(ObservationSettings, RewardSettings, BoundedActionSettings):
    """Hyperparameters of TD3.  Defaults are the paper's (sections 6.1 and C), and those of the authors' later code.

    docs/defaults.md compares all defaults with the paper's.

    Attributes:
      batch_size: transitions in a learner step, over all replicas.
      accumulate: batches in a learner step, whose gradients are averaged before the optimizer applies them, as if they
        were one larger batch that did not fit into memory.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).  None for
        up to 8 where observations are small, not more than are due after a timestep of all environments.
      discount: γ.
      n_step: n, transitions whose rewards a return adds up before it bootstraps; fewer where an episode ends.
      critics: see `CriticSettings`.
      reset_every: learner steps after which policy, critics and their optimizers begin anew, with replay as it is
        (Nikishin et al. 2022), a multiple of `updates_per_call`; None for never.
      normalize_rewards: see `RewardSettings`; not in the paper.
      exploration_noise: standard deviation of the Gaussian noise of actors, in units of half the range of an action.
      target_noise: standard deviation of the noise that smooths the target policy's actions, in the same unit; 0 for
        no smoothing.
      target_noise_clip: c, the largest such noise.
      policy_delay: d, learner steps from one gradient step of the policy, and of all targets, to the next.
      target_update_rate: τ, the fraction of the distance to the networks that their targets move at such a step.
      actor_optimizer: of the policy, see `OptimizerSettings`.
      critic_optimizer: of the critics.
      replay: see `ReplaySettings`; its items are transitions.  Until learning begins, actions are uniformly random.  If
        `samples_per_insert` equals the batch size, there is one learner step per environment step, as in the paper.
      network: see `ActorCriticSettings`.
    """

    batch_size: PositiveInt = 256
    accumulate: PositiveInt = 1
    updates_per_call: PositiveInt | None = None
    discount: UnitInterval = 0.99
    n_step: PositiveInt = 1
    critics: CriticSettings = CriticSettings()
    reset_every: PositiveInt | None = None
    normalize_rewards: bool = True
    exploration_noise: NonNegativeFloat = 0.1
    target_noise: NonNegativeFloat = 0.2
    target_noise_clip: NonNegativeFloat = 0.5
    policy_delay: PositiveInt = 2
    target_update_rate: Annotated[float, Interval(gt=0, le=1)] = 0.005
    actor_optimizer: OptimizerSettings = _ADAM
    critic_optimizer: OptimizerSettings = _ADAM
    replay: ReplaySettings = ReplaySettings(size=1_000_000, min_size=1000, samples_per_insert=256.0)
    network: ActorCriticSettings = ActorCriticSettings(hidden_sizes=(256, 256), activation="relu")


@dataclasses.dataclass(frozen=True)
class TD3BCSettings(TD3Settings):
    """Hyperparameters of TD3+BC.  Defaults are the paper's (table 3).  Other settings are TD3's.

    Attributes:
      value_weight: α, the weight of the critic's value, in units of the mean absolute value of the batch, against the
        squared difference from the recorded action.
      replay: see `ReplaySettings`; its items are transitions.
    """

    normalize_rewards: bool = False
    value_weight: PositiveFloat = 2.5
    replay: ReplaySettings = ReplaySettings(size=1_000_000, min_size=10_000, samples_per_insert=256.0)
