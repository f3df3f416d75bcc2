"""Overlapping sequences of single environments, each with its own priority and the recurrent state it began with."""

from ..data import Layout, Sample
from .handle import ReplayHandle
from .item_writer import ItemColumns, ItemWriter, Priority, without_last
from .per_environment_writers import ReplayItem


def prioritized_sequence_signature(
    layout: Layout, length: int, stack: int = 1, keep_extras: bool = False
) -> ReplayItem:
    """The `tf.TensorSpec` nest of a sequence of `length` transitions, with frames to be stacked `stack` high."""
    return ItemColumns(layout, keep_extras, keep_state=True).signature(length, stack)


def read_sequences(item: ReplayItem, layout: Layout, stack: int = 1, keep_extras: bool = False) -> Sample:
    """Time-major sequences from a batch of items `[B, length + 1, ...]`.

    Returns:
      `Sample` of `length` transitions.  A sequence may reach over the end of an episode.
    """
    rows, state = ItemColumns(layout, keep_extras, keep_state=True).read(item, stack)
    record = rows._replace(
        action=without_last(rows.action),
        reward=rows.reward[:-1],
        discount=rows.discount[:-1],
        extras=without_last(rows.extras),
        version=rows.version[:-1],
    )
    return Sample(record=record, state=state)


class PrioritizedSequenceWriter(ItemWriter):
    """Writes the timesteps of one actor's environments as sequences of `length` transitions, one every `period`
    timesteps.

    What is left of a sequence when the writer is closed is dropped.

    Args:
      replay: where to write.
      layout: names the record and state to expect; what differs in shape or dtype is refused at the first append.
      table: the table's name.
      length: transitions in a sequence, those for burn-in among them.
      period: timesteps between the starts of two sequences.
      priority: gives first priorities; None makes all of them 1.
      stack: frames that a network sees at a time.
      keep_extras: whether replay keeps the policy's extras.
      shard: the replay shard.
    """

    def __init__(
        self,
        replay: ReplayHandle,
        layout: Layout,
        table: str,
        length: int,
        period: int,
        priority: Priority | None = None,
        stack: int = 1,
        keep_extras: bool = False,
        shard: int = 0,
    ):
        super().__init__(
            replay,
            layout,
            table,
            length=length,
            period=period,
            columns=ItemColumns(layout, keep_extras, keep_state=True),
            priority=priority,
            stack=stack,
            shard=shard,
        )
