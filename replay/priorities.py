"""Asynchronous priority updates, which never block the learner."""

import queue
import threading
import time
from typing import NamedTuple

import numpy as np
import reverb

from ..data import Priorities
from .handle import ReplayHandle

_POLL_SECONDS = 0.2
_PROBE_SECONDS = 1


class UpdateCounts(NamedTuple):
    """Numbers of priority updates, added up over all shards."""

    sent: int
    dropped: int


class PriorityUpdater:
    """Sends new priorities from background threads to the shards that hold the items.

    If the queue of a shard that does not respond is full, further updates are dropped and counted, and their items
    keep their priorities.

    Args:
      replay: handle of the shards.
      table: the table's name.
      max_waiting: maximum number of queued updates per shard.
      patience: seconds without a response after which a shard is treated as down.  A pending call cannot be canceled
        (Reverb retries forever), so it is abandoned with its thread, and a new thread starts once the shard responds.
    """

    def __init__(self, replay: ReplayHandle, table: str, max_waiting: int = 16, patience: float = 5.0):
        self._incoming: queue.Queue[Priorities] = queue.Queue(max_waiting)
        self._incoming_dropped = 0
        self._unfinished = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._shards = [
            _ShardUpdater(replay, shard, table, max_waiting, patience, self._stop)
            for shard in range(len(replay.addresses()))
        ]
        threading.Thread(target=self._distribute, name="priorities", daemon=True).start()

    def offer(self, priorities: Priorities) -> None:
        """Queues an update of tensors or arrays.  Never blocks, and does not wait for tensors to be computed."""
        with self._lock:
            try:
                self._incoming.put_nowait(priorities)
                self._unfinished += 1
            except queue.Full:
                self._incoming_dropped += 1

    def counts(self) -> UpdateCounts:
        """Returns the numbers of sent and dropped updates; an update for several shards counts once for each."""
        return UpdateCounts(
            sent=sum(shard.sent for shard in self._shards),
            dropped=self._incoming_dropped + sum(shard.dropped for shard in self._shards),
        )

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds until all updates are sent or dropped; returns False if they are not."""
        deadline = time.monotonic() + timeout
        while self._unfinished or any(shard.busy for shard in self._shards):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.0005)
        return True

    def close(self) -> None:
        """Ends the threads; queued updates are lost."""
        self._stop.set()

    def _distribute(self) -> None:
        while not self._stop.is_set():
            try:
                update = self._incoming.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            keys, shards, priorities = (np.asarray(leaf) for leaf in update)
            # A NaN priority would permanently corrupt the sums that Reverb samples by.
            sound = np.isfinite(priorities) & (priorities >= 0)
            for number, shard in enumerate(self._shards):
                chosen = sound & (shards == number)
                if chosen.any():
                    shard.offer(dict(zip(keys[chosen].tolist(), priorities[chosen].tolist(), strict=True)))
            with self._lock:
                self._unfinished -= 1


class _ShardUpdater:
    """Queue and sender of one shard's updates."""

    def __init__(
        self,
        replay: ReplayHandle,
        shard: int,
        table: str,
        max_waiting: int,
        patience: float,
        stop: threading.Event,
    ):
        self.sent = 0
        self.dropped = 0
        self._replay = replay
        self._shard = shard
        self._table = table
        self._patience = patience
        self._stop = stop
        self._waiting: queue.Queue[dict[int, float]] = queue.Queue(max_waiting)
        self._unfinished = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name=f"priorities-{shard}", daemon=True).start()

    @property
    def busy(self) -> bool:
        return self._unfinished > 0

    def offer(self, update: dict[int, float]) -> None:
        with self._lock:
            try:
                self._waiting.put_nowait(update)
                self._unfinished += 1
            except queue.Full:
                self.dropped += 1

    def _run(self) -> None:
        sender: _Sender | None = None
        while not self._stop.is_set():
            try:
                update = self._waiting.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            address = self._replay.address(self._shard)
            if sender is None or sender.address != address:
                if sender is not None:
                    sender.abandoned.set()
                sender = _Sender(address, self._table)
            if sender.send(update, self._patience, self._stop):
                self.sent += 1
            else:
                sender.abandoned.set()
                sender = None
                self.dropped += 1
            with self._lock:
                self._unfinished -= 1
            if sender is None:
                self._wait_until_back()

    def _wait_until_back(self) -> None:
        """Waits until the shard responds again; new updates are queued meanwhile, as long as there is room."""
        while not self._stop.is_set():
            client = reverb.Client(self._replay.address(self._shard))
            try:
                client.server_info(timeout=_PROBE_SECONDS)
                return
            except Exception:  # Reverb raises its own errors and RuntimeError; all mean that no server answers yet.
                self._stop.wait(_POLL_SECONDS)


class _Sender:
    """A connection to one address, with a thread that may block in a call to it."""

    def __init__(self, address: str, table: str):
        self.address = address
        self.abandoned = threading.Event()
        self._table = table
        self._calls: queue.Queue[dict[int, float]] = queue.Queue()
        self._answers: queue.Queue[bool] = queue.Queue()
        threading.Thread(target=self._run, name="priorities-sender", daemon=True).start()

    def send(self, update: dict[int, float], timeout: float, stop: threading.Event) -> bool:
        """Sends an update; returns whether the shard confirmed it within `timeout` seconds."""
        self._calls.put(update)
        deadline = time.monotonic() + timeout
        while not stop.is_set():
            try:
                return self._answers.get(timeout=max(0.0, min(_POLL_SECONDS, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    return False
        return False

    def _run(self) -> None:
        client = reverb.Client(self.address)
        while not self.abandoned.is_set():
            try:
                update = self._calls.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            try:
                client.mutate_priorities(self._table, update)
                self._answers.put(True)
            except Exception:  # As in `_wait_until_back`.
                self._answers.put(False)
