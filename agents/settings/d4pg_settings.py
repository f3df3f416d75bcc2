"""Hyperparameters of D4PG and DMPO, and those that they share."""

import dataclasses

from ...networks.network_settings import ActorCriticSettings
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import FiniteFloat, NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval
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


def _adam(learning_rate: float, max_gradient_norm: float | None = 40.0) -> OptimizerSettings:
    return OptimizerSettings(
        learning_rate=learning_rate, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=max_gradient_norm
    )


@dataclasses.dataclass(frozen=True)
class DMPOSettings(DistributionalCriticSettings):
    """Hyperparameters of DMPO.  Defaults are those of Acme's DMPO (Hoffman et al. 2020).

    Dual variables are the softplus of trained variables, whose initial values `initial_temperature`,
    `initial_alpha_mean` and `initial_alpha_stddev` are before it.  docs/defaults.md compares all defaults with Acme's.

    Attributes:
      normalize_rewards: see `RewardSettings`; not in Acme.
      action_samples: actions that are sampled from the target policy at an observation (N).
      epsilon: bound of the KL divergence of the improved policy from the target policy (ε), kept by the temperature.
      epsilon_mean: bound of the divergence of each component of an action due to the policy's mean (ε_μ).
      epsilon_stddev: bound of that due to its standard deviation (ε_σ).
      action_penalization: whether actions beyond the bounds have a cost, as in MO-MPO (Abdolmaleki et al. 2020).
      epsilon_penalty: ε of the improved policy by that cost.
      initial_temperature: of both improved policies; Acme's is 10, for rewards as they are.
      initial_alpha_mean: of the multipliers of the constraints on the mean.
      initial_alpha_stddev: of those on the standard deviation.
      dual_optimizer: of the dual variables, whose gradients are not clipped.
    """

    normalize_rewards: bool = True
    action_samples: PositiveInt = 20
    epsilon: PositiveFloat = 0.1
    epsilon_mean: PositiveFloat = 0.0025
    epsilon_stddev: PositiveFloat = 1e-6
    action_penalization: bool = True
    epsilon_penalty: PositiveFloat = 0.001
    initial_temperature: FiniteFloat = 1.0
    initial_alpha_mean: FiniteFloat = 10.0
    initial_alpha_stddev: FiniteFloat = 1000.0
    actor_optimizer: OptimizerSettings = _adam(1e-4)
    critic_optimizer: OptimizerSettings = _adam(1e-4)
    dual_optimizer: OptimizerSettings = _adam(1e-2, max_gradient_norm=None)
    replay: ReplaySettings = ReplaySettings(size=1_000_000, min_size=1000, samples_per_insert=32.0)
    network: ActorCriticSettings = ActorCriticSettings(hidden_sizes=(256, 256, 256), activation="elu", layer_norm=True)
