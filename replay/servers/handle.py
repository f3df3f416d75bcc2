"""Handle of the replay servers, resolved again when a server restarts at another address, and waiting for one.

Its heartbeat lets clients reconnect quickly after that, and a filter drops items that writers then send again.
"""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import reverb
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


_SECONDS = 1.0


CALL_SECONDS = 5.0
"""How long a call to a shard's `WindowWeights` usually waits for an answer."""


@dataclasses.dataclass(frozen=True)
class ReplayHandle:
    """Handle of all replay shards.

    Nodes receive a handle rather than a client, because an address is only valid until its server restarts.
    """

    addresses: Callable[[], Sequence[str]]
    """Returns the current `host:port` of every shard."""
    incarnation_ids: Callable[[], Sequence[str]] | None = None
    """Returns an id per shard that changes when its server is replaced at the same address."""
    in_process: bool = False
    """Whether the servers run in this process, so that Reverb's samplers read their tables directly."""
    windows: Callable[[int, float], Any] | None = None
    """Returns a client of a shard's `WindowWeights`, where prioritized windows are in items of whole batches, given the
    shard and the seconds after which a call without an answer raises an error."""
    received: DuplicateFilter = dataclasses.field(default_factory=DuplicateFilter)
    """Deduplicates the items of all queues that are read through this handle."""
    ended: threading.Event = dataclasses.field(default_factory=threading.Event)
    """Set when nothing is read any more: then datasets of several queues end, even if they wait for items."""

    def address(self, shard: int = 0) -> str:
        return self.addresses()[shard]

    def incarnation(self, shard: int) -> tuple[str, str]:
        """Returns the incarnation of a shard's server, which changes when the server is replaced."""
        return self.address(shard), self.incarnation_ids()[shard] if self.incarnation_ids else ""

    def client(self, shard: int = 0) -> reverb.Client:
        """Creates a client of one shard, which connects when it is first used."""
        return reverb.Client(self.address(shard))


def flushed(writer: reverb.TrajectoryWriter, timeout: float, max_pending: int) -> bool:
    """Sends what a writer holds, and waits until the server has confirmed it.

    Args:
      writer: the writer.
      timeout: maximum time to wait, in seconds; at least a millisecond is waited.
      max_pending: number of items that may remain unconfirmed.

    Returns:
      Whether only that many are unconfirmed.
    """
    try:
        # Reverb waits forever if the timeout is 0.
        writer.flush(max_pending, max(1, int(1000 * timeout)))
    except reverb.errors.DeadlineExceededError:
        return False
    return True


class Heartbeat:
    """Calls every shard once a second, each from a background thread.

    By default gRPC waits 9 s or more before it retries a lost connection, and all clients of a process share that
    backoff.  Calls with a timeout of a second make it retry immediately, so clients reconnect to a restarted server
    within about two seconds.

    Args:
      replay: handle of the shards.
      stop: ends the threads when set.
      only: indices of the shards to call; None for all.
    """

    def __init__(self, replay: ReplayHandle, stop: threading.Event, only: Sequence[int] | None = None):
        self._replay = replay
        self._stop = stop
        for shard in range(len(replay.addresses())) if only is None else only:
            threading.Thread(target=self._beat, args=(shard,), name=f"replay-heartbeat-{shard}", daemon=True).start()

    def _beat(self, shard: int) -> None:
        address, client = None, None
        while not self._stop.wait(_SECONDS):
            if address != self._replay.address(shard):
                address = self._replay.address(shard)
                client = reverb.Client(address)
            try:
                client.server_info(timeout=1)  # type: ignore[union-attr]
            except Exception:  # Reverb raises its own errors and RuntimeError; all mean that no server answers yet.
                continue
