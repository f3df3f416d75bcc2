"""What has been received from every writer, so that an item which arrives a second time is dropped."""

import threading

import tensorflow as tf

_NEWEST, _DROPPED = 0, 1
# Of so many numbers that follow each other all are told apart; a writer has far fewer items on their way.
_SLOTS = 64


class ReceivedItems:
    """The numbers lately received from every writer, and how many items were dropped.

    A writer that loses its connection sends again what was not confirmed, in any order.  An item that is still in its
    queue takes the place of itself, but one that was read meanwhile is put in once more.  A reader is built anew when a
    connection was lost too, so what has been received is remembered outside of datasets, for as long as the learner
    lives.  Writers of all tables and shards share one memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: tf.lookup.experimental.MutableHashTable | None = None

    def prepare(self) -> None:
        """Makes the memory, where there is none yet.  Needed outside of dataset functions, before `first_time`."""
        # Not sooner: TensorFlow's devices must not be touched before a learner has made its strategy.
        with self._lock, tf.device("CPU:0"):
            if self._table is None:
                self._table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, default_value=[-1, 0])

    def first_time(self, identity: tf.Tensor) -> tf.Tensor:
        """Whether an item is new, a bool tensor; takes note of it.

        Args:
          identity: int64 `[2]`, the item's writer, from 0 to 2^56 - 1, and its number.
        """
        assert self._table is not None
        writer, number = identity[0], identity[1]
        slot = writer * _SLOTS + number % _SLOTS
        known = self._table.lookup(slot)
        new = number > known[_NEWEST]
        dropped = known[_DROPPED] + tf.cast(~new, tf.int64)
        self._table.insert(slot, tf.stack([tf.maximum(known[_NEWEST], number), dropped]))
        return new

    def dropped(self) -> int:
        """Items that had been received before."""
        if self._table is None:
            return 0
        _, noted = self._table.export()
        return int(tf.reduce_sum(noted[:, _DROPPED]))
