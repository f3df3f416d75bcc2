"""Settings of the observations that agents see."""

import dataclasses

from ...settings.setting_types import PositiveInt


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservationSettings:
    """Settings for the observations that the network receives; agents' settings extend them.

    Attributes:
      frame_stack: number of most recent images that the network sees; replay stores each image once.
    """

    frame_stack: PositiveInt = 1
