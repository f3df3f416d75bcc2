"""Asynchronous priority updates, which never block the learner."""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb

from ...data import Priorities
from ...errors import CallboardError, counted
from ...runtime.deadlines import Deadline
from ..servers.handle import CALL_SECONDS, ReplayHandle
from .daemon_executor import DaemonExecutor


class UpdateCounts(NamedTuple):
    """Numbers of priority updates, added up over all shards."""

    sent: int
    dropped: int


class PriorityUpdater:
    """Sends new priorities from background threads to the shards that hold the items.

    Priorities of windows in items of whole batches go to the shard's `WindowWeights`, all others to Reverb.

    Reverb's call has no timeout: it blocks until the shard responds.  Updates of such a shard are queued; if its queue
    is full, they are dropped and counted, and their items keep their priorities.  A shard whose server is replaced gets
    another thread; updates that the old server had not confirmed are dropped.

    Args:
      replay: handle of the shards.
      tables: names of the tables that hold the items; each update goes to all, which ignore items of other tables.
      max_pending: maximum number of queued updates per shard.
    """

    def __init__(self, replay: ReplayHandle, *tables: str, max_pending: int = 16):
        self._replay = replay
        self._tables = tables
        self._max_pending = max_pending
        self._lock = threading.Lock()
        self._sent_before = self._dropped = 0
        self._connections = [self._connect(shard) for shard in range(len(replay.addresses()))]
        # Not a task of the learner's thread, because it waits for tensors to be computed.
        self._distributor = DaemonExecutor("priorities", max_pending)

    def submit(self, priorities: Priorities) -> None:
        """Queues an update of tensors or arrays.  Never blocks, and does not wait for tensors to be computed.

        Raises:
          CallboardError: the priorities of an earlier update are not `[B]`, or not finite and at least 0.
        """
        if not self._distributor.submit(functools.partial(self._distribute, priorities)):
            self._count_dropped()

    def counts(self) -> UpdateCounts:
        """Returns the numbers of sent and dropped updates; an update for several shards counts once for each."""
        with self._lock:
            sent = self._sent_before + sum(connection.sent for connection in self._connections)
            return UpdateCounts(sent, self._dropped + sum(connection.failed for connection in self._connections))

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds until all updates are sent or dropped; returns whether they are.

        Raises:
          CallboardError: as `submit`.
        """
        deadline = Deadline(timeout)
        # The distributor may replace connections.
        return self._distributor.wait(timeout) and all(
            connection.executor.wait(deadline.left) for connection in self._connections
        )

    def raise_failure(self) -> None:
        """Raises the `CallboardError` that the next `submit` would raise."""
        self._distributor.raise_failure()

    def close(self) -> None:
        """Ends the threads; queued updates are lost."""
        for executor in (self._distributor, *(connection.executor for connection in self._connections)):
            executor.close()

    def _distribute(self, priorities: Priorities) -> None:
        """Queues the parts of an update for their shards."""
        keys, shards, values = (np.asarray(leaf) for leaf in priorities[:3])
        envs = None if isinstance(priorities.env, tuple) else np.asarray(priorities.env)
        _check(keys, shards, values, envs)
        for shard in range(len(self._connections)):
            chosen = shards == shard
            if not chosen.any():
                continue
            if self._connections[shard].incarnation != self._replay.incarnation(shard):
                self._reconnect(shard)
            connection = self._connections[shard]
            if envs is None:
                update = connection.of_items(keys[chosen], values[chosen])
            else:
                assert self._replay.windows is not None
                update = connection.of_windows(
                    self._replay.windows(shard, CALL_SECONDS), keys[chosen], envs[chosen], values[chosen]
                )
            if not connection.submit(update):
                self._count_dropped()

    def _connect(self, shard: int) -> "_Connection":
        return _Connection(self._replay.incarnation(shard), self._tables, self._max_pending)

    def _reconnect(self, shard: int) -> None:
        old = self._connections[shard]
        old.executor.close()
        with self._lock:
            sent = old.sent
            self._sent_before += sent
            self._dropped += old.submitted - sent
            self._connections[shard] = self._connect(shard)

    def _count_dropped(self) -> None:
        with self._lock:
            self._dropped += 1


def _check(keys: np.ndarray, shards: np.ndarray, values: np.ndarray, envs: np.ndarray | None) -> None:
    shapes = {"key": keys.shape, "shard": shards.shape, "priority": values.shape}
    shapes |= {} if envs is None else {"env": envs.shape}
    if keys.ndim != 1 or len(set(shapes.values())) > 1:
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise CallboardError(
            f"priorities are one number for each sampled item, all [B], and these have the shapes {found}: fix what "
            "the learner returns"
        )
    # A NaN priority would permanently corrupt the sums that Reverb samples by.
    valid = np.isfinite(values) & (values >= 0)
    if not valid.all():
        raise CallboardError(
            f"priorities are finite and at least 0, but {int((~valid).sum())} of {counted(len(values), 'item')} "
            f"got another, such as {values[~valid][0]}: fix what the loss returns"
        )


class _Connection:
    """Sends updates to one incarnation of a shard's server, in order, from a thread that may block."""

    def __init__(self, incarnation: tuple[str, str], tables: Sequence[str], max_pending: int):
        self.incarnation = incarnation
        self.executor = DaemonExecutor("priorities-sender", max_pending)
        self.submitted = self.sent = self.failed = 0
        self._client = reverb.Client(incarnation[0])
        self._tables = tables

    def of_items(self, keys: np.ndarray, priorities: np.ndarray) -> Callable[[], None]:
        """Returns a function that sends priorities of items."""
        priority_of = dict(zip(keys.tolist(), priorities.tolist(), strict=True))

        def send() -> None:
            for table in self._tables:
                self._client.mutate_priorities(table, priority_of)

        return send

    def of_windows(
        self, windows: Any, keys: np.ndarray, envs: np.ndarray, priorities: np.ndarray
    ) -> Callable[[], None]:
        """Returns a function that sends priorities of windows in items of whole batches to their `WindowWeights`."""
        leaves = (keys.astype(np.uint64), envs.astype(np.int32), priorities.astype(np.float32))
        return lambda: windows.update_windows(*(leaf.tobytes() for leaf in leaves))

    def submit(self, update: Callable[[], None]) -> bool:
        """Queues an update; returns False if the queue is full."""
        queued = self.executor.submit(functools.partial(self._send, update))
        self.submitted += queued
        return queued

    def _send(self, update: Callable[[], None]) -> None:
        try:
            update()
            self.sent += 1
        except Exception:  # Reverb and Courier raise their own errors; all mean that the server is gone.
            self.failed += 1
