"""Reading batches beside the learner, so that a dead replay server never blocks it for good."""

import atexit
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_POLL_SECONDS = 0.2
_END_SECONDS = 1.0

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class ReaderStopped(Exception):
    """Raised by `BatchReader` when the run stops while it waits for a batch."""


def raise_if_stopped(batches: Iterator[Any]) -> None:
    """Ends a long learner step early, between its parts, where the run stops.

    Raises:
      ReaderStopped: `batches` are those of a `BatchReader`, and the run stops.
    """
    if isinstance(batches, BatchReader):
        batches.raise_if_stopped()


class BatchReader(Iterator[Any]):
    """An iterator over a dataset that can be interrupted and rebuilt.

    `next(dataset)` blocks in C++ and cannot be interrupted, so a thread of its own does it and holds one batch ready.
    When the replay server comes back as another one, `rebuild` ends the old thread and starts anew.

    Args:
      make_dataset: builds the dataset; called again by `rebuild`.  An iterator over it that waits for ever is left
        behind with its threads, unless it has a method `cancel`, as those of `Elements` do.
      stopped: True once the run stops; waiting then ends with `ReaderStopped`.
      patience: seconds that `next` waits before it gives up with `ReaderStopped`; a batch that comes later is kept.
      identity: of the replay server.  When it changes the server is another one, and the dataset is built anew.
    """

    def __init__(
        self,
        make_dataset: Callable[[], Iterable[Any]],
        stopped: Callable[[], bool],
        identity: Callable[[], object] = lambda: None,
        patience: float = math.inf,
    ):
        self._make_dataset = make_dataset
        self._stopped = stopped
        self._identity = identity
        self._patience = patience
        self._known_identity = identity()
        self._generation = _Generation(make_dataset)
        self._waiting_since: float | None = None

    def __next__(self) -> Any:
        self._waiting_since = time.monotonic()
        try:
            while True:
                batch = self.poll(_POLL_SECONDS)
                if batch is not None:
                    return batch
                if self._stopped() or self.seconds_waited > self._patience:
                    raise ReaderStopped
        finally:
            self._waiting_since = None

    def raise_if_stopped(self) -> None:
        if self._stopped():
            raise ReaderStopped

    def has_next(self) -> bool:
        """Whether a batch is there, so that `next` would not wait."""
        return not self._generation.batches.empty()

    @property
    def seconds_waited(self) -> float:
        """How long `next` has been waiting for a batch by now; 0 if it is not."""
        since = self._waiting_since
        return 0.0 if since is None else time.monotonic() - since

    def poll(self, timeout: float) -> Any:
        """The next batch if it is there within `timeout` seconds, else None."""
        if self._identity() != self._known_identity:
            self._known_identity = self._identity()
            self.rebuild()
        try:
            batch = self._generation.batches.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(batch, StopIteration):
            # Reverb ends a dataset where a connection came back to another table: read on with a new one.
            self.rebuild()
            return None
        if isinstance(batch, Exception):
            raise batch
        return batch

    def rebuild(self) -> None:
        """Starts over with a new dataset; a batch that the old one held ready is dropped."""
        self._generation.abandon()
        self._generation = _Generation(self._make_dataset)

    def close(self) -> None:
        self._generation.abandon()


class _Generation:
    """One dataset and the thread that reads it."""

    def __init__(self, make_dataset: Callable[[], Iterable[Any]]):
        self.batches: queue.Queue[Any] = queue.Queue(maxsize=1)
        self._abandoned = threading.Event()
        self._make_dataset = make_dataset
        self._cancel: Callable[[], None] = lambda: None
        thread = threading.Thread(target=self._read, name="batch-reader", daemon=True)
        thread.start()
        _threads.add(thread)
        # Always the newest, since it must run before what ends the libraries that these threads are in.
        atexit.unregister(_wait_for_threads)
        atexit.register(_wait_for_threads)

    def abandon(self) -> None:
        """Ends the thread, whatever it waits for."""
        self._abandoned.set()
        self._cancel()

    def _read(self) -> None:
        try:
            iterator = iter(self._make_dataset())
            self._cancel = getattr(iterator, "cancel", self._cancel)
            # Where it was abandoned before there was something to cancel, nothing is waited for.
            while not self._abandoned.is_set():
                batch = next(iterator)
                if not self._put(batch):
                    return
        except Exception as error:
            self._put(error)

    def _put(self, batch: Any) -> bool:
        while not self._abandoned.is_set():
            try:
                self.batches.put(batch, timeout=_POLL_SECONDS)
                return True
            except queue.Full:
                continue
        return False


def _wait_for_threads() -> None:
    """A thread that comes back from C++ while the interpreter ends would abort the process."""
    deadline = time.monotonic() + _END_SECONDS
    for thread in list(_threads):
        thread.join(max(0.0, deadline - time.monotonic()))
