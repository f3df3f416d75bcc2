"""Settings of prioritized replay that several agents share."""

import dataclasses

from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import UnitInterval
from ..schedules import ScheduledUnitInterval


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrioritizedReplaySettings(ReplaySettings):
    """Settings of prioritized replay.

    Attributes:
      priority_exponent: α, items are sampled in proportion to priority^α; 0 samples uniformly.
      importance_exponent: β, how far importance weights correct the bias of prioritized sampling, or a schedule of it,
        such as from 0.4 to 1 (Schaul et al. 2016).
    """

    priority_exponent: UnitInterval
    importance_exponent: ScheduledUnitInterval
