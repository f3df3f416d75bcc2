"""Calls a logger in a background thread, so that a slow or broken service neither blocks nor ends the run."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import one_line
from .metric_logger import LoggedRun, MetricLogger

_ROWS = 256
"""Rows that wait for the service; about ten minutes."""
_CLOSE_SECONDS = 20.0


class LoggerThread:
    """A logger in a thread of its own.

    Args:
      name: name of the logger, for messages.
      make: makes the logger; called in the thread, since importing a service's library may take seconds.
      run: the run.
      notify: receives a line for the user: once if the logger fails, and once if it is too slow.
      close_seconds: how long `close` waits for the logger at most.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], MetricLogger],
        run: LoggedRun,
        notify: Callable[[str], None],
        close_seconds: float = _CLOSE_SECONDS,
    ):
        self._name = name
        self._make = make
        self._run = run
        self._notify = notify
        self._close_seconds = close_seconds
        self._rows: queue.Queue[Mapping[str, Any] | None] = queue.Queue(_ROWS)
        self._failed = False
        self._slow = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"logger {name}", daemon=True)
        self._thread.start()

    def write(self, row: Mapping[str, Any]) -> None:
        """Takes a row; drops it if the logger is behind by very many."""
        try:
            self._rows.put_nowait(row)
        except queue.Full:
            if not self._slow and not self._failed:
                self._slow = True
                self._notify(f"{self._name} is too slow: metrics are dropped there; the run continues")

    def close(self) -> None:
        """Waits for the logger to send what is left, for a limited time."""
        self._closing.set()
        try:
            self._rows.put_nowait(None)
        except queue.Full:
            pass
        self._thread.join(self._close_seconds)
        if self._thread.is_alive():
            self._notify(
                f"{self._name} has not finished within {self._close_seconds:.0f} s: its last metrics may be missing"
            )

    def _work(self) -> None:
        logger: MetricLogger | None = None
        started = False
        try:
            logger = self._make()
            logger.start(self._run)
            started = True
        except BaseException as error:  # Libraries of services may even raise SystemExit.
            self._fail(error)
        while not (self._closing.is_set() and self._rows.empty()):
            row = self._rows.get()
            if row is None:
                break
            try:
                if started and logger is not None:
                    logger.write(row)
            except BaseException as error:
                self._fail(error)
        if logger is not None:
            try:
                logger.close()
            except BaseException as error:
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        logging.warning("%s failed", self._name, exc_info=error)
        if not self._failed:
            self._failed = True
            self._notify(f"metrics do not reach {self._name}: {one_line(error)}; the run continues without")
