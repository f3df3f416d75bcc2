"""Replay of overlapping sequences, each with its initial recurrent state (R2D2)."""

import dataclasses
from collections.abc import Callable

from ..data import Layout, Nest, Record, Sample
from .handle import ReplayHandle
from .per_environment_writers import ReplayItem
from .prioritized_sequences import PrioritizedSequenceWriter, prioritized_sequence_signature, read_sequences
from .sampled_replay import TABLE, SampledReplay, unchanged


@dataclasses.dataclass(frozen=True)
class SequenceReplay(SampledReplay):
    """A replay of sequences of `length` transitions, one every `period` timesteps of an environment.

    A sequence may cross the end of an episode.

    Attributes:
      length: transitions in a sequence, including the burn-in.
      period: timesteps between the starts of consecutive sequences.
      keep_extras: whether items store the policy's extras; otherwise they only serve to compute initial priorities.
      stored_state: selects the part of the policy's recurrent state that items store.
    """

    length: int = 1
    period: int = 1
    keep_extras: bool = False
    stored_state: Callable[[Nest], Nest] = unchanged

    def signature(self) -> ReplayItem:
        return prioritized_sequence_signature(self._stored_layout, self.length, self.stack, self.keep_extras)

    def read(self, item: ReplayItem) -> Sample:
        return read_sequences(item, self._stored_layout, self.stack, self.keep_extras)

    def writer(self, replay: ReplayHandle, actor: int) -> "_StoredStateWriter":
        return _StoredStateWriter(
            self.stored_state,
            replay,
            self._stored_layout,
            TABLE,
            self.length,
            self.period,
            priority=self.first_priority,
            stack=self.stack,
            keep_extras=self.keep_extras,
            shard=self.layout.shard_of(actor),
        )

    @property
    def _stored_layout(self) -> Layout:
        return self.layout._replace(state=self.stored_state(self.layout.state))


class _StoredStateWriter(PrioritizedSequenceWriter):
    """A sequence writer that stores only a part of the recurrent state."""

    def __init__(self, stored_state: Callable[[Nest], Nest], *arguments: object, **options: object):
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._stored_state = stored_state

    def append(self, record: Record, state: Nest = ()) -> None:
        super().append(record, self._stored_state(state))
