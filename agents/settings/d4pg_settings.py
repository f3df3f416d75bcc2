"""Hyperparameters of D4PG, and those that it shares with DMPO."""

import dataclasses

from ...networks.network_settings import ActorCriticSettings
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import FiniteFloat, NonNegativeFloat, PositiveInt, UnitInterval
from .optimizer_settings import OptimizerSettings
from .shared_settings import BoundedActionSettings, ObservationSettings, RewardSettings

_ADAM = OptimizerSettings(learning_rate=1e-4, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None)


@dataclasses.dataclass(frozen=True)
class DistributionalCriticSettings(ObservationSettings, RewardSettings, BoundedActionSettings):
    """Hyperparameters of agents with a categorical critic for continuous actions, D4PG and DMPO.

    Attributes:
      n_step: transitions in a window (N).
      batch_size: windows in a learner step, over all replicas (M).
      accumulate: batches in a learner step, whose gradients are averaged before the optimizer applies them, as if they
        were one larger batch that did not fit into memory.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).
      discount: γ.
      atoms: values in the support of the critic's distribution, at least 2.
      value_min: lowest value of the support; discounted returns below it are not distinguished.  None
        follows the returns seen, see `value_range.ValueRange`.
      value_max: highest value of the support; None likewise.
      target_update_period: learner steps between copies of policy and critic to their targets.
      actor_optimizer: of the policy, see `OptimizerSettings`.
      critic_optimizer: of the critic.
      replay: see `ReplaySettings`; its items are windows.  Until learning begins, actions are uniformly random.
      network: see `ActorCriticSettings`.
    """

    n_step: PositiveInt = 5
    batch_size: PositiveInt = 256
    accumulate: PositiveInt = 1
    updates_per_call: PositiveInt = 1
    discount: UnitInterval = 0.99
    atoms: PositiveInt = 51
    value_min: FiniteFloat | None = None
    value_max: FiniteFloat | None = None
    target_update_period: PositiveInt = 100
    actor_optimizer: OptimizerSettings = _ADAM
    critic_optimizer: OptimizerSettings = _ADAM
    replay: ReplaySettings = ReplaySettings(size=1_000_000, min_size=1000, samples_per_insert=256.0)
    network: ActorCriticSettings = ActorCriticSettings(hidden_sizes=(400, 300), activation="relu")


@dataclasses.dataclass(frozen=True)
class D4PGSettings(DistributionalCriticSettings):
    """Hyperparameters of D4PG.  Defaults are the paper's, or those of Acme's D4PG.

    Replay is sampled uniformly; the paper found priorities less important than its other parts.  docs/defaults.md
    compares all defaults with the paper's.

    Attributes:
      exploration_noise: standard deviation of the Gaussian noise of actors (ε), in units of half the range of an
        action.
    """

    exploration_noise: NonNegativeFloat = 0.3
