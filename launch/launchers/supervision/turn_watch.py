"""Detection of the node that hangs where all nodes share one thread, which cannot be killed."""

import threading
import time
from collections.abc import Callable

from ....runtime.deadlines import Clock
from ...nodes.progress import HEARTBEAT_SECONDS, Progress
from .progress_watchdog import Overdue, ProgressWatchdog


class TurnWatch:
    """Watches the node whose turn it is, from a thread, until `close`.

    Args:
      turn: returns that node's name, its progress and its timeout in seconds; None before the first turn.
      notify: takes a line to show to the user.
      on_overdue: called once, in the watching thread, with the node that hangs for longer than its timeout.
      clock: the clock; another one in tests.
      seconds: interval between two looks, in real time.
    """

    def __init__(
        self,
        turn: Callable[[], tuple[str, Progress, float] | None],
        notify: Callable[[str], None],
        on_overdue: Callable[[Overdue], None],
        clock: Clock = time.monotonic,
        seconds: float = HEARTBEAT_SECONDS,
    ):
        self._turn = turn
        self._on_overdue = on_overdue
        self._watchdog = ProgressWatchdog(notify, clock)
        self._seconds = seconds
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="turn-watch", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        watched = ""
        while not self._closed.wait(self._seconds):
            turn = self._turn()
            if turn is None:
                continue
            name, progress, timeout = turn
            if name != watched:
                self._watchdog.ended(watched)
                self._watchdog.began(name, timeout)
                watched = name
            self._watchdog.heard(name, progress.heartbeat())
            for overdue in self._watchdog.look():
                self._on_overdue(overdue)
                return
