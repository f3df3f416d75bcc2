"""Hyperparameters of SAC."""

import dataclasses
from typing import Annotated

from annotated_types import Interval

from ...networks.critic_settings import CriticSettings
from ...networks.network_settings import ActorCriticSettings
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import FiniteFloat, PositiveFloat, PositiveInt, UnitInterval
from .bounded_action_settings import BoundedActionSettings
from .observation_settings import ObservationSettings
from .optimizer_settings import OptimizerSettings
from .reward_settings import RewardSettings

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
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).
      hold: timesteps for which an exploratory action is repeated before the next one is sampled, or until a mask
        forbids it.
      discount: γ.
      n_step: n, transitions whose rewards a return adds up before it bootstraps; fewer where an episode ends.  The
        entropy of the policy at the observations between is part of it.
      critics: see `CriticSettings`.
      crossq: whether policy and critics are batch-renormalized, and there are no target critics (Bhatt et al. 2024).
      reset_every: learner steps after which policy, critics and their optimizers begin anew, with replay as it is
        (Nikishin et al. 2022); None for never.
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
    updates_per_call: PositiveInt = 1
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
