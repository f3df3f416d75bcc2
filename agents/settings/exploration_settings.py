"""Settings of exploration that agents with action values share."""

import dataclasses

from ...settings.setting_types import NonNegativeFloat, UnitInterval
from ..schedules import ScheduledUnitInterval


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplorationSettings:
    """Rates of random actions of agents that learn action values, which extend this class.

    Attributes:
      epsilon: exploration rate of the first environment, or a schedule of it, which actors follow with the weights that
        they fetch.  A single environment explores at this rate and needs a lower one.
      epsilon_alpha: the last environment explores at rate epsilon^(1 + epsilon_alpha), the others in between.
      evaluation_epsilon: rate of random actions in evaluation; 0.001 or 0.01 is usual on Atari, where a policy without
        random actions may repeat an action without effect until the time limit.
    """

    epsilon: ScheduledUnitInterval = 0.4
    epsilon_alpha: NonNegativeFloat = 7.0
    evaluation_epsilon: UnitInterval = 0.0
