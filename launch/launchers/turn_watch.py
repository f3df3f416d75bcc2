"""Naming the role that hangs where all roles share one thread, which no one can end."""

import math
import threading
from collections.abc import Callable

from ..nodes.progress import HEARTBEAT_SECONDS, Progress
from .progress_watchdog import ProgressWatchdog


class TurnWatch:
    """Looks at the role whose turn it is, from a thread of its own, until `close`.

    Args:
      turn: gives that role's name and progress; None where none has a turn yet.
      say: takes a line that a user should read.
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
