"""Hyperparameters of TD3+BC."""

import dataclasses

from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import PositiveFloat
from ..settings.td3_settings import TD3Settings


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
