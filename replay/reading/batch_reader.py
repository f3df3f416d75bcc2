"""Background reading of batches, so that an unreachable replay server never blocks the learner forever."""

import atexit
import functools
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...runtime.deadlines import Deadline

_POLL_SECONDS = 0.2
_FIRST_POLL_SECONDS = 0.005
_END_SECONDS = 1.0
_SERVER_STOP_SECONDS = 5.0
"""Time after the end of a reader in which a replay server in the same process should have stopped."""

_exiting = threading.Event()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class ReaderStopped(Exception):
    """Raised by `BatchReader` when the run stops while it waits for a batch."""


def raise_if_stopped(batches: Iterator[Any]) -> None:
    """Ends a long learner step early, between its parts, when the run stops.

    Raises:
      ReaderStopped: `batches` is a `BatchReader`, and the run is stopping.
    """
    if isinstance(batches, BatchReader):
        batches.raise_if_stopped()


class BatchReader(Iterator[Any]):
    """An iterator over a dataset that can be interrupted and rebuilt.

    `next(dataset)` blocks in C++ and cannot be interrupted, so a background thread calls it and keeps one batch ready.
    When the replay server has been replaced, `rebuild` abandons that thread and starts another with a new dataset.

    Args:
      make_dataset: builds the dataset; called again by `rebuild`.  An iterator that blocks forever is leaked with its
        threads, unless it has a method `cancel`, as the iterators of `Elements` do.
      stopped: returns True once the run stops; waiting then ends with `ReaderStopped`.
      incarnation: returns the replay server's incarnation; the dataset is rebuilt when it changes.
      patience: seconds after which a waiting `next` raises `ReaderStopped`; a batch that arrives later is kept.
      while_waiting: called soon after `next` begins to wait, and then several times a second.
      ahead: elements that are read before they are needed.
      arrived: called, in another thread, when an element is available.
    """

    def __init__(
        self,
        make_dataset: Callable[[], Iterable[Any]],
        stopped: Callable[[], bool],
        incarnation: Callable[[], object] = lambda: None,
        patience: float = math.inf,
        while_waiting: Callable[[], object] = lambda: None,
        ahead: int = 2,
        arrived: Callable[[], object] = lambda: None,
    ):
        self._make_thread = functools.partial(_DatasetThread, make_dataset, ahead, arrived)
        self._stopped = stopped
        self._incarnation = incarnation
        self._patience = patience
        self._while_waiting = while_waiting
        self._known_incarnation = incarnation()
        self._thread = self._make_thread()
        self._waiting_since: float | None = None
        self._waited = 0.0

    def __next__(self) -> Any:
        self._waiting_since = time.monotonic()
        timeout = _FIRST_POLL_SECONDS
        try:
            while True:
                batch = self.poll(timeout)
                if batch is not None:
                    return batch
                if self._stopped() or self.seconds_waited > self._patience:
                    raise ReaderStopped
                self._while_waiting()
                timeout = _POLL_SECONDS
        finally:
            self._waited += self.seconds_waited
            self._waiting_since = None

    def raise_if_stopped(self) -> None:
        if self._stopped():
            raise ReaderStopped

    @property
    def seconds_waited(self) -> float:
        """Seconds for which the current call of `next` has been waiting for a batch; 0 outside of a call."""
        since = self._waiting_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def total_seconds_waited(self) -> float:
        """Seconds for which all calls of `next` have waited for a batch."""
        return self._waited + self.seconds_waited

    def poll(self, timeout: float) -> Any:
        """Returns the next batch if it arrives within `timeout` seconds, else None."""
        if self._incarnation() != self._known_incarnation:
            self._known_incarnation = self._incarnation()
            self.rebuild()
        try:
            batch = self._thread.batches.get(timeout=timeout)
        except queue.Empty:
            return None
        self._thread.room.release()
        if isinstance(batch, StopIteration):
            # Reverb ends a dataset when its connection is restored to another table: continue with a new dataset.
            self.rebuild()
            return None
        if isinstance(batch, BaseException):
            raise batch
        return batch

    def rebuild(self) -> None:
        """Starts over with a new dataset; a batch that is already available from the old one is dropped."""
        self._thread.abandon()
        self._thread = self._make_thread()

    def close(self) -> None:
        """Ends reading, in the background.

        To cancel a dataset that waits for a server in the same process would block all threads for up to three seconds,
        since Reverb's sampler holds Python's lock until it looks for that again.  It takes no time once the server has
        stopped, as it usually does right after its readers.
        """
        self._thread.abandon(after=_SERVER_STOP_SECONDS)


class _DatasetThread:
    """A dataset and the thread that reads it."""

    def __init__(self, make_dataset: Callable[[], Iterable[Any]], ahead: int, arrived: Callable[[], object]):
        # Not a SimpleQueue: where its timeout has passed before it looks at the clock, Python 3.10 waits forever.
        self.batches: queue.Queue[Any] = queue.Queue()
        self.room = threading.Semaphore(ahead)
        """Released for each batch that is taken."""
        self._arrived = arrived
        self._abandoned = threading.Event()
        self._make_dataset = make_dataset
        self._cancel: Callable[[], None] = lambda: None
        _start_thread(self._read, "batch-reader")

    def abandon(self, after: float = 0.0) -> None:
        """Ends the thread, or leaks it if it is blocked in a dataset that cannot be canceled.

        Args:
          after: seconds after which a dataset that is being waited for is canceled, or earlier when the process exits.
        """
        self._abandoned.set()
        if after:
            _start_thread(lambda: (_exiting.wait(after), self._cancel()), "batch-reader-end")
        else:
            self._cancel()

    def _read(self) -> None:
        try:
            iterator = iter(self._make_dataset())
            self._cancel = getattr(iterator, "cancel", self._cancel)
            # Do not wait for a batch if `abandon` was called before `_cancel` was set.
            while not self._abandoned.is_set():
                if self.room.acquire(timeout=_POLL_SECONDS):
                    self._put(next(iterator))
        except BaseException as error:
            self._put(error)
        finally:
            # The iterator ends here, with its threads.  Later, garbage collection would wait for them in any thread.
            self._cancel = lambda: None

    def _put(self, batch: Any) -> None:
        self.batches.put(batch)
        self._arrived()


def _start_thread(call: Callable[[], object], name: str) -> None:
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    _threads.add(thread)
    # Register it again to run first: it must run before the handlers of the libraries that these threads are in.
    atexit.unregister(_wait_for_threads)
    atexit.register(_wait_for_threads)


def _wait_for_threads() -> None:
    """Waits for reader threads at exit: one that returns from C++ during finalization would abort the process."""
    _exiting.set()
    deadline = Deadline(_END_SECONDS)
    for thread in list(_threads):
        thread.join(deadline.left)
