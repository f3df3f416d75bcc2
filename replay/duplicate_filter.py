"""What has been received from every writer, so that an item which arrives a second time is dropped."""

import threading

import numpy as np
import tensorflow as tf

_DROPPED = -1
"""Where the number of items that were dropped stands; no slot is negative."""
# Of so many numbers that follow each other all are told apart; a writer has far fewer items on their way, and seldom as
# many in what is read at a time.
_SLOTS = 1024
IDENTITY_BYTES = 16
WRITER_BITS = 52
"""Of the number that tells a writer from all others."""


def identity(writer: int, number: int) -> np.ndarray:
    """What tells an item from all others, int64 `[2]`: where it is remembered, and its number.

    Args:
      writer: any number of `WRITER_BITS` bits that no other writer has.
      number: how many items the writer wrote before.
    """
    return np.array([writer * _SLOTS + number % _SLOTS, number], np.int64)


class DuplicateFilter:
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
        """Makes the memory, where there is none yet.  Needed outside of dataset functions, before `new`."""
        # Not sooner: TensorFlow's devices must not be touched before a learner has made its strategy.
        with self._lock, tf.device("CPU:0"):
            if self._table is None:
                self._table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, default_value=-1)
                self._table.insert(_DROPPED, tf.constant(0, tf.int64))

    def new(self, identities: tf.Tensor) -> tf.Tensor:
        """Which items are new, as their indices, int64 `[M]`; takes note of them.

        Args:
          identities: int64 `[N, 2]`, see `identity`; N must be known.
        """
        assert self._table is not None
        slot, number = tf.unstack(identities, axis=1)
        known = self._table.lookup(slot)
        # Of one that is here twice, the first is new.
        same = tf.reduce_all(identities[:, tf.newaxis] == identities, axis=-1)
        here_before = tf.reduce_any(same & np.tri(identities.shape[0], k=-1, dtype=bool), axis=-1)
        # Indices, because to pick by booleans costs a dozen operations for each tensor.
        new = tf.reshape(tf.where((number > known) & ~here_before), [-1])
        self._table.insert(slot, tf.maximum(number, known))
        dropped = tf.size(number, tf.int64) - tf.size(new, tf.int64)
        self._table.insert(_DROPPED, self._table.lookup(_DROPPED) + dropped)
        return new

    def dropped(self) -> int:
        """Items that had been received before."""
        return 0 if self._table is None else int(self._table.lookup(_DROPPED))
