"""Hyperparameters of DrQ."""

import dataclasses
from typing import Annotated

from annotated_types import Interval

from ...networks.network_settings import ActorCriticSettings
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import NonNegativeInt, PositiveFloat, PositiveInt
from .optimizer_settings import OptimizerSettings
from .sac_settings import SacSettings

_ADAM = OptimizerSettings(learning_rate=1e-3, learning_rate_decay=False, epsilon=1e-8, max_gradient_norm=None)


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
    actor_optimizer: OptimizerSettings = _ADAM
    critic_optimizer: OptimizerSettings = _ADAM
    temperature_optimizer: OptimizerSettings = _ADAM
    replay: ReplaySettings = ReplaySettings(size=100_000, min_size=1000, samples_per_insert=512.0)
    network: ActorCriticSettings = ActorCriticSettings(hidden_sizes=(1024, 1024), activation="relu")
