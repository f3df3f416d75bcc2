"""Reporting of the node that hangs where all nodes share one thread, which cannot be killed."""

import math
import threading
from collections.abc import Callable

from ..nodes.progress import HEARTBEAT_SECONDS, Progress
from .progress_watchdog import ProgressWatchdog


class TurnWatch:
    """Watches the node whose turn it is, from a thread, until `close`.

    Args:
      turn: returns that node's name and progress; None before the first turn.
      say: takes a line to show to the user.
    """

    def __init__(self, turn: Callable[[], tuple[str, Progress] | None], say: Callable[[str], None]):
        self._turn = turn
        self._watchdog = ProgressWatchdog(say)
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="turn-watch", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        watched = ""
        while not self._closed.wait(HEARTBEAT_SECONDS):
            turn = self._turn()
            if turn is None:
                continue
            name, progress = turn
            if name != watched:
                self._watchdog.ended(watched)
                self._watchdog.began(name, math.inf)
                watched = name
            self._watchdog.heard(name, progress.heartbeat())
            self._watchdog.look()
