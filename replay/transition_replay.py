"""Replay of n-step transitions (Ape-X, SAC)."""

import dataclasses

from .sampled_replay import SampledReplay
from .servers.handle import ReplayHandle
from .writing.windows import WindowFormat, WindowWriter


@dataclasses.dataclass(frozen=True)
class TransitionReplay(SampledReplay):
    """A replay of windows of up to `n_step` transitions, one from every timestep that starts a valid transition.

    Attributes:
      n_step: transitions in a window (n); fewer at the end of an episode.
    """

    n_step: int = 1

    def format_of(self, together: int) -> WindowFormat:
        return WindowFormat(
            self.layout, self.n_step, self.stack, returns_discount=self.returns_discount, together=together
        )

    def writer(self, replay: ReplayHandle, actor: int) -> WindowWriter:
        shard, item_format = self.layout.shard_of(actor), self.format_of(self.together)
        table = self.table_of(actor)
        return WindowWriter(replay, item_format, table, self.first_priority, shard, self.priority_exponent)
