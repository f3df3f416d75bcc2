"""An executor for calls that may block forever."""

import queue
import threading
from collections.abc import Callable


class DaemonExecutor:
    """Makes calls one after another in a daemon thread; further calls wait in a bounded queue.

    At exit, the interpreter waits for the threads of a `concurrent.futures.ThreadPoolExecutor`, so that a call that
    blocks forever keeps the process alive.  It does not wait for daemon threads.

    A call that raises ends the thread, and the next use of the executor raises its error.

    Args:
      name: name of the thread.
      max_pending: maximum number of calls in the queue.
    """

    def __init__(self, name: str, max_pending: int):
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._max_pending = max_pending
        self._changed = threading.Condition()
        self._unfinished = 0
        self._closed = False
        self._failure: BaseException | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], None]) -> bool:
        """Queues a call.  Never blocks; returns False if the queue is full.

        Raises:
          Exception: an earlier call has raised it.
        """
        self.raise_failure()
        with self._changed:
            # The call in progress is not in the queue.
            if self._unfinished > self._max_pending:
                return False
            self._unfinished += 1
        self._calls.put(call)
        return True

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds until all calls have ended; returns whether they have.

        Raises:
          Exception: a call has raised it.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: not self._unfinished or self._failure, max(0.0, timeout))
        self.raise_failure()
        return bool(done)

    def raise_failure(self) -> None:
        """Raises the error of a call, if one has raised."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Ends the thread after the call in progress; calls in the queue are not made."""
        self._closed = True
        self._calls.put(None)

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            if call is None or self._closed:
                return
            try:
                call()
            except BaseException as error:
                self._failure = error
            with self._changed:
                self._unfinished -= 1
                self._changed.notify_all()
            if self._failure is not None:
                return
