"""n-step windows: up to n transitions from every timestep that begins one.

A window ends early where experience does: after a termination, at a time limit, before a final observation that was
lost, and where the writer is closed.  In replay it is a slice of n + 1 consecutive timesteps all the same; what lies
beyond its end is blotted out when it is read.
"""

import numpy as np
import tensorflow as tf

from ..data import Layout, Nest, Record, Sample
from .handle import ReplayHandle
from .item_writer import ItemColumns, ItemWriter, Priority, without_last
from .per_environment_writers import ReplayItem


def window_signature(layout: Layout, steps: int, stack: int = 1, keep_extras: bool = False) -> ReplayItem:
    """The `tf.TensorSpec` nest of a window of `steps` transitions, with frames to be stacked `stack` high."""
    return ItemColumns(layout, keep_extras).signature(steps, stack)


def read_windows(item: ReplayItem, layout: Layout, stack: int = 1, keep_extras: bool = False) -> Sample:
    """Time-major windows from a batch of items `[B, n + 1, ...]`.

    Returns:
      `Sample` of n transitions.  Those beyond the end of a short window do not count (`losses.transitions.counts`):
      `last` is True, rewards are 0 and discounts 1.  The observation after the transitions that count is the one to
      bootstrap from; after a termination it has no meaning.
    """
    rows, _ = ItemColumns(layout, keep_extras).read(item, stack)
    reached = tf.stack(_reached(rows.first, rows.last, rows.discount))
    record = rows._replace(
        first=tf.concat([rows.first[:1], tf.zeros_like(rows.first[1:])], axis=0),
        last=tf.concat([~reached, rows.last[-1:]], axis=0),
        action=without_last(rows.action),
        reward=tf.where(reached, rows.reward[:-1], 0.0),
        discount=tf.where(reached, rows.discount[:-1], 1.0),
        extras=without_last(rows.extras),
        version=rows.version[:-1],
    )
    return Sample(record=record, state=())


class WindowWriter(ItemWriter):
    """Writes the timesteps of one actor's environments as windows of up to `steps` transitions.

    Args:
      replay: where to write.
      layout: names the record to expect; what differs in shape or dtype is refused at the first append.
      table: the table's name.
      steps: n.
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
        steps: int,
        priority: Priority | None = None,
        stack: int = 1,
        keep_extras: bool = False,
        shard: int = 0,
    ):
        super().__init__(
            replay,
            layout,
            table,
            length=steps,
            period=1,
            columns=ItemColumns(layout, keep_extras),
            priority=priority,
            stack=stack,
            shard=shard,
        )
        self._newest: Record | None = None
        self._timesteps_within = 0

    def append(self, record: Record, state: Nest = ()) -> None:
        """Adds one timestep, a `Record` of arrays `[B, ...]`; the policy's state is not kept.

        Never blocks; call `ready` before the next timestep.
        """
        self._append(record)
        self._newest = record

    def close(self) -> None:
        """Ends the open windows at the newest observation, waits for the server for at most 2 s, and disconnects."""
        if self._newest is not None:
            # As if all episodes were cut off here: no window reaches over, and each gets the timesteps it still lacks.
            batch = len(self._newest.first)
            cut_off = self._newest._replace(
                first=np.ones(batch, bool), last=np.zeros(batch, bool), discount=np.ones(batch, np.float32)
            )
            for _ in range(self._length):
                self._append(cut_off)
            self._newest = None
        super().close()

    def chosen(self, record: Record) -> np.ndarray | None:
        """Those whose first transition counts."""
        if self._all_reached():
            return None
        return ~record.last[0] & ((record.discount[0] == 0) | ~record.first[1])

    def as_sampled(self, record: Record) -> Record:
        if self._all_reached():
            return record
        reached = ~record.last[:-1] & ((record.discount == 0) | ~record.first[1:])
        reached[1:] &= record.discount[:-1] != 0
        np.logical_and.accumulate(reached, out=reached)
        first, last = np.zeros_like(record.first), record.last.copy()
        first[0] = record.first[0]
        last[:-1] = ~reached
        return record._replace(
            first=first,
            last=last,
            reward=np.where(reached, record.reward, np.float32(0)),
            discount=np.where(reached, record.discount, np.float32(1)),
        )

    def _append(self, record: Record) -> None:
        within = not (np.count_nonzero(record.first) or np.count_nonzero(record.last))
        within = within and np.count_nonzero(record.discount) == len(record.discount)
        self._timesteps_within = self._timesteps_within + 1 if within else 0
        super().append(record)

    def _all_reached(self) -> bool:
        """Whether all windows of the newest timesteps surely are whole: no episode began or ended in any of them.

        So it mostly is.  Arrays that say it cost some 15 µs more a timestep, as much as all else that is not Reverb's.
        """
        return self._timesteps_within > self._length


def _reached(first: tf.Tensor, last: tf.Tensor, discount: tf.Tensor) -> list[tf.Tensor]:
    """Whether each of n transitions belongs to the window, n times bool `[B]`, from tensors `[n + 1, B]`."""
    reached: list[tf.Tensor] = []
    for t in range(first.shape[0] - 1):
        counts = ~last[t] & ((discount[t] == 0) | ~first[t + 1])
        reached.append(counts if not reached else reached[-1] & (discount[t - 1] != 0) & counts)
    return reached
