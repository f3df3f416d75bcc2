"""Replay of n-step transitions (Ape-X, SAC)."""

import dataclasses

from ..data import Sample
from .handle import ReplayHandle
from .per_environment_writers import ReplayItem
from .sampled_replay import TABLE, SampledReplay
from .windows import WindowWriter, read_windows, window_signature


@dataclasses.dataclass(frozen=True)
class TransitionReplay(SampledReplay):
    """A replay of windows of up to `n_step` transitions, one from every timestep that starts a valid transition.

    Attributes:
      n_step: transitions in a window (n); fewer at the end of an episode.
    """

    n_step: int = 1

    def signature(self) -> ReplayItem:
        return window_signature(self.layout, self.n_step, self.stack)

    def read(self, item: ReplayItem) -> Sample:
        return read_windows(item, self.layout, self.stack)

    def writer(self, replay: ReplayHandle, actor: int) -> WindowWriter:
        return WindowWriter(
            replay,
            self.layout,
            TABLE,
            self.n_step,
            priority=self.first_priority,
            stack=self.stack,
            shard=self.layout.shard_of(actor),
        )
