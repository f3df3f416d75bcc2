"""Deduplication of items that writers send again after a lost connection."""

import threading

import numpy as np
import tensorflow as tf

_DROPPED = -1
"""Key under which the table stores the number of dropped items; keys of slots are never negative."""


class DuplicateFilter:
    """Tracks the items recently received from every writer, and counts the duplicates that were dropped.

    A writer that loses its connection resends unconfirmed items, in any order.  An item that is still in its queue is
    replaced by itself, but one that has been read in the meantime is inserted a second time.  Since readers are also
    rebuilt after a lost connection, the filter's state is kept outside of datasets, as long as the learner runs.
    Writers of all tables and shards share one filter.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: tf.lookup.experimental.MutableHashTable | None = None

    def prepare(self) -> None:
        """Creates the table if it does not exist.  Must be called outside of dataset functions, before `new`."""
        # Not in the constructor: TensorFlow's devices must not be initialized before a learner creates its strategy.
        with self._lock, tf.device("CPU:0"):
            if self._table is None:
                self._table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, default_value=-1)
                self._table.insert(_DROPPED, tf.constant(0, tf.int64))

    def new(self, item_ids: tf.Tensor) -> tf.Tensor:
        """Returns the indices of the items that are new, int64 `[M]`, and records all items as received.

        Args:
          item_ids: int64 `[N, 2]`, see `packing.item_id`; N must be static.
        """
        assert self._table is not None
        slot, number = tf.unstack(item_ids, axis=1)
        known = self._table.lookup(slot)
        # Of an item that occurs twice in this batch, the first is new.
        same = tf.reduce_all(item_ids[:, tf.newaxis] == item_ids, axis=-1)
        here_before = tf.reduce_any(same & np.tri(item_ids.shape[0], k=-1, dtype=bool), axis=-1)
        # Indices, because selecting by a boolean mask takes a dozen operations for each tensor.
        new = tf.reshape(tf.where((number > known) & ~here_before), [-1])
        self._table.insert(slot, tf.maximum(number, known))
        dropped = tf.size(number, tf.int64) - tf.size(new, tf.int64)
        self._table.insert(_DROPPED, self._table.lookup(_DROPPED) + dropped)
        return new

    def dropped(self) -> int:
        """Returns the number of duplicates dropped so far."""
        return 0 if self._table is None else int(self._table.lookup(_DROPPED))
