"""Hyperparameters of CQL."""

import dataclasses

from ...networks.network_settings import ActorCriticSettings
from ...settings.setting_types import NonNegativeFloat, PositiveFloat, PositiveInt
from ..settings.optimizer_settings import OptimizerSettings
from ..settings.sac_settings import SacSettings


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
