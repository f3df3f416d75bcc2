"""Settings of replay that several agents share."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ..setting_types import PositiveFloat, PositiveInt, UnitInterval

if TYPE_CHECKING:
    # Settings are parsed and validated before TensorFlow is imported.
    from ..replay import ReplayLimits


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """Size of replay, and how often it is sampled.  An item is a transition, a window or a sequence, by agent.

    Attributes:
      size: maximum number of items in replay, over all shards; the oldest are evicted.
      min_size: items in replay before learning begins.
      samples_per_insert: average number of times that an item is learned from; actors wait for the learner, or vice
        versa.
      error_buffer: samples by which learning may run ahead of or behind samples_per_insert; None for a suitable number.
    """

    size: PositiveInt
    min_size: PositiveInt
    samples_per_insert: PositiveFloat
    error_buffer: PositiveFloat | None = None

    def limits(self) -> ReplayLimits:
        """Returns the limits of the replay's tables."""
        from ..replay import ReplayLimits

        return ReplayLimits(self.size, self.min_size, self.samples_per_insert, self.error_buffer)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrioritizedReplaySettings(ReplaySettings):
    """Settings of prioritized replay.

    Attributes:
      priority_exponent: α, items are sampled in proportion to priority^α; 0 samples uniformly.
      importance_exponent: β, how far importance weights correct the bias of prioritized sampling.
    """

    priority_exponent: UnitInterval
    importance_exponent: UnitInterval
