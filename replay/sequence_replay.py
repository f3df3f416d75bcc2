"""Replay of overlapping sequences, each with its priority and its initial recurrent state (R2D2)."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from ..data import Nest, Sample
from ..errors import CallboardError
from .sampled_replay import SampledReplay
from .servers.handle import ReplayHandle
from .writing.batch_writers import ReplayItem
from .writing.item_format import ItemFormat, without_last
from .writing.item_writer import ItemWriter


def unchanged(state: Nest) -> Nest:
    """Returns the recurrent state unchanged."""
    return state


@dataclasses.dataclass(frozen=True)
class SequenceFormat(ItemFormat):
    """Format of sequences of `length` transitions, with their initial recurrent state."""

    stored_state: Callable[[Nest], Nest] | None = unchanged

    def read(self, item: ReplayItem, goal: tf.Tensor | None = None) -> Sample:
        """Converts a batch of items `[B, length + 1, ...]` to time-major sequences.

        Returns:
          A `Sample` of `length` transitions.  A sequence may cross the end of an episode.
        """
        sample = self.unpack(item)
        rows = sample.record
        record = rows._replace(
            action=without_last(rows.action),
            reward=rows.reward[:-1],
            discount=rows.discount[:-1],
            extras=without_last(rows.extras),
            version=rows.version[:-1],
        )
        return sample._replace(record=record, discounted_return=without_last(sample.discounted_return))


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

    def check(self) -> None:
        super().check()
        if self.relabels_goals:
            raise CallboardError(
                "agent.replay.hindsight is for agents that learn from windows, such as sac, td3, d4pg and apex, and "
                "this one learns from sequences: set agent.replay.hindsight.goals to 0"
            )

    def format_of(self, together: int) -> SequenceFormat:
        return SequenceFormat(
            self.layout, self.length, self.stack, self.keep_extras, self.stored_state, self.returns_discount, together
        )

    def writer(self, replay: ReplayHandle, actor: int) -> ItemWriter:
        shard = self.layout.shard_of(actor)
        table = self.table_of(actor)
        return ItemWriter(
            replay, self.item_format, table, self.period, self.first_priority, shard, self.priority_exponent
        )
