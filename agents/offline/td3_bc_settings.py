"""Hyperparameters of TD3+BC."""

import dataclasses

from ...networks.network_settings import ActorCriticSettings
from ...replay_settings import ReplaySettings
from ...setting_types import PositiveFloat, PositiveInt
from ..optimizer_settings import OptimizerSettings
from ..settings.td3_settings import TD3Settings

_ADAM = OptimizerSettings(learning_rate=3e-4, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None)


@dataclasses.dataclass(frozen=True)
class TD3BCSettings(TD3Settings):
    """Hyperparameters of TD3+BC.  Defaults are the paper's (table 3).

    Attributes:
      batch_size: transitions in a learner step, over all replicas.
      value_weight: α, the weight of the critic's value, in units of the mean absolute value of the batch, against the
        squared difference from the recorded action.
      actor_optimizer: of the policy, see `OptimizerSettings`.
      critic_optimizer: of the critics.
      replay: see `ReplaySettings`; its items are transitions.
      network: see `ActorCriticSettings`.
    """

    normalize_rewards: bool = False
    batch_size: PositiveInt = 256
    value_weight: PositiveFloat = 2.5
    actor_optimizer: OptimizerSettings = _ADAM
    critic_optimizer: OptimizerSettings = _ADAM
    replay: ReplaySettings = ReplaySettings(size=1_000_000, min_size=10_000, samples_per_insert=256.0)
    network: ActorCriticSettings = ActorCriticSettings(
        hidden_sizes=(256, 256), activation="relu", normalize_observations=True
    )
