"""Hyperparameters of SAC, and of DrQ and CQL, which extend it."""

import dataclasses
from typing import Annotated

from annotated_types import Interval

from ...networks.network_settings import ActorCriticSettings, CriticSettings
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import (
    FiniteFloat,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
)
from .optimizer_settings import OptimizerSettings
from .shared_settings import BoundedActionSettings, ObservationSettings, RewardSettings

_ADAM = OptimizerSettings(learning_rate=3e-4, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None)


@dataclasses.dataclass(frozen=True)
class SacSettings(ObservationSettings, RewardSettings, BoundedActionSettings):
    """Hyperparameters of SAC.  Defaults are the paper's (appendix D) where it states one.

    The gradients of critics, policy and temperature are taken at the same weights; other implementations update one
    after the other.  docs/defaults.md compares all defaults with the papers'.

    Attributes:
      batch_size: transitions in a learner step, over all replicas.
      accumulate: batches in a learner step, whose gradients are averaged before the optimizer applies them, as if they
        were one larger batch that did not fit into memory.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).  None for
        up to 8 where observations are small, not more than are due after a timestep of all environments.
      hold: timesteps for which an exploratory action is repeated before the next one is sampled, or until a mask
        forbids it.
      discount: γ.
      n_step: n, transitions whose rewards a return adds up before it bootstraps; fewer where an episode ends.  The
        entropy of the policy at the observations between is part of it.
      critics: see `CriticSettings`.
      crossq: whether policy and critics are batch-renormalized, and there are no target critics (Bhatt et al. 2024).
      reset_every: learner steps after which policy, critics and their optimizers begin anew, with replay as it is
        (Nikishin et al. 2022), a multiple of `updates_per_call`; None for never.
      normalize_rewards: see `RewardSettings`; not in the paper.
      target_update_rate: τ, the fraction of the distance to the critics that the target critics move in an update.
      target_update_period: learner steps between updates of the target critics.
      policy_delay: learner steps from one update of the policy, and of α, to the next.
      temperature: initial α, the weight of entropy relative to rewards, which are normalized by default.
      target_entropy: entropy, in nats, to which α drives the policy over actions scaled to [-1, 1]; None for minus the
        number of action components.  With A discrete actions it is at most log A, and None stands for 0.5 log A,
        where A counts the actions that are legal in the observation.  With several parts it is that of all together.
      actor_optimizer: of the policy, see `OptimizerSettings`.
      critic_optimizer: of the critics.
      temperature_optimizer: of the logarithm of α.
      replay: see `ReplaySettings`; its items are transitions.  Until learning begins, actions are uniformly random.  If
        `samples_per_insert` equals the batch size, there is one learner step per environment step.
      network: see `ActorCriticSettings`.
    """

    batch_size: PositiveInt = 256
    accumulate: PositiveInt = 1
    updates_per_call: PositiveInt | None = None
    hold: PositiveInt = 1
    discount: UnitInterval = 0.99
    n_step: PositiveInt = 1
    critics: CriticSettings = CriticSettings()
    crossq: bool = False
    reset_every: PositiveInt | None = None
    normalize_rewards: bool = True
    target_update_rate: Annotated[float, Interval(gt=0, le=1)] = 0.005
    target_update_period: PositiveInt = 1
    policy_delay: PositiveInt = 1
    temperature: PositiveFloat = 0.01
    target_entropy: FiniteFloat | None = None
    actor_optimizer: OptimizerSettings = _ADAM
    critic_optimizer: OptimizerSettings = _ADAM
    temperature_optimizer: OptimizerSettings = _ADAM
    replay: ReplaySettings = ReplaySettings(size=1_000_000, min_size=1000, samples_per_insert=256.0)
    network: ActorCriticSettings = ActorCriticSettings(hidden_sizes=(256, 256), activation="relu")


_DRQ_ADAM = OptimizerSettings(learning_rate=1e-3, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None)


@dataclasses.dataclass(frozen=True)
class DrQSettings(SacSettings):
    """Hyperparameters of DrQ, which are SAC's and those of augmentation.  Defaults are the paper's (appendix B).

    `network.filters` are the convolutions of the encoder that policy and critics share, [[32, 3, 2], [32, 3, 1],
    [32, 3, 1], [32, 3, 1]] if there are none, and `network.image_features` the normalized features that policy and
    critics each make of its outputs, 50 if there are none.  docs/defaults.md compares all defaults with the paper's.

    Attributes:
      shift: pixels by which images are shifted at random, at most, in both directions; 0 for no augmentation.
      augmentations: shifts of each observation, over which targets and losses of the critics are averaged (K and M).
    """

    shift: NonNegativeInt = 4
    augmentations: PositiveInt = 2
    batch_size: PositiveInt = 512
    target_update_rate: Annotated[float, Interval(gt=0, le=1)] = 0.01
    target_update_period: PositiveInt = 2
    policy_delay: PositiveInt = 2
    temperature: PositiveFloat = 0.1
    normalize_rewards: bool = False
    frame_stack: PositiveInt = 3
    actor_optimizer: OptimizerSettings = _DRQ_ADAM
    critic_optimizer: OptimizerSettings = _DRQ_ADAM
    temperature_optimizer: OptimizerSettings = _DRQ_ADAM
    replay: ReplaySettings = ReplaySettings(size=100_000, min_size=1000, samples_per_insert=512.0)
    network: ActorCriticSettings = ActorCriticSettings(hidden_sizes=(1024, 1024), activation="relu")


@dataclasses.dataclass(frozen=True)
class CQLSettings(SacSettings):
    """Hyperparameters of CQL.  Those that are not here are SAC's; defaults are the authors' for MuJoCo.

    Attributes:
      conservative_weight: α of the penalty on values of actions that are not recorded, beside half of the squared
        errors (equation 4); the authors' code has all of them, so that half of its weight is the same.  0 is SAC.
      action_samples: actions with which the penalty of an action of numbers is estimated: so many of the policy, of the
        policy at the next observation, and uniform ones.  Discrete actions are summed over.
      actor_optimizer: of the policy, see `OptimizerSettings`.
      network: see `ActorCriticSettings`.
    """

    normalize_rewards: bool = False
    temperature: PositiveFloat = 1.0
    conservative_weight: NonNegativeFloat = 5.0
    action_samples: PositiveInt = 10
    actor_optimizer: OptimizerSettings = OptimizerSettings(
        learning_rate=1e-4, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None
    )
    network: ActorCriticSettings = ActorCriticSettings(hidden_sizes=(256, 256, 256), activation="relu")
