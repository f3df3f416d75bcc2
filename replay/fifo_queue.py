"""Shared parts of first-in-first-out queues: their shards, no priorities, and no whole batch at the end."""

import dataclasses

from ..data import Layout
from .servers.window_weights import SetPriorities


@dataclasses.dataclass(frozen=True)
class FifoQueue:
    """A queue whose items are learned from once, those of each shard in the order of writing.

    Attributes:
      layout: the run's layout; only `check` works without record and state.
    """

    layout: Layout

    @property
    def catches_up(self) -> bool:
        """False: what is in the queue when a run ends may be a part of a batch."""
        return False

    @property
    def is_queue(self) -> bool:
        return True

    @property
    def may_weigh_windows(self) -> bool:
        return False

    def window_weights(self, set_priorities: SetPriorities) -> None:
        return None

    def check(self) -> None:
        """Raises `CallboardError` for sizes that cannot work; any number of shards does."""

    def per_shard(self, items: int) -> int:
        """Returns the size of each shard's table, of `items` items in all: more shards hold no older data than one."""
        return -(-items // self.layout.shards)
