"""Overlapping sequences of single environments, each with its own priority and initial recurrent state."""

from ..data import Layout, Sample
from .handle import ReplayHandle
from .item_writer import ItemColumns, ItemWriter, Priority, without_last
from .per_environment_writers import ReplayItem


def prioritized_sequence_signature(
    layout: Layout, length: int, stack: int = 1, keep_extras: bool = False
) -> ReplayItem:
    """Returns the `tf.TensorSpec` nest of a sequence of `length` transitions with stacks of `stack` frames."""
    return ItemColumns(layout, keep_extras, keep_state=True).signature(length, stack)


def read_sequences(item: ReplayItem, layout: Layout, stack: int = 1, keep_extras: bool = False) -> Sample:
    """Converts a batch of items `[B, length + 1, ...]` to time-major sequences.

    Returns:
      A `Sample` of `length` transitions.  A sequence may cross the end of an episode.
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
    """Writes an actor's timesteps as sequences of `length` transitions, one every `period` timesteps.

    Incomplete sequences are dropped when the writer is closed.

    Args:
      replay: handle of the replay to write to.
      layout: contains the specs of record and state; the first `append` raises `ValueError` if a shape or dtype of the
        record differs.
      table: the table's name.
      length: transitions in a sequence, including the burn-in.
      period: timesteps between the starts of consecutive sequences.
      priority: computes initial priorities; None sets all of them to 1.
      stack: number of frames that the network sees.
      keep_extras: whether replay stores the policy's extras.
      shard: index of the replay shard.
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
