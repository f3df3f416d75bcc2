"""Noticing a forkserver that hangs: nodes would neither start nor be seen to end."""

import os
import select
import threading
from collections.abc import Callable

from ..nodes.progress import HEARTBEAT_SECONDS, Heartbeat
from .forkserver import kill_forkserver, ping_forkserver
from .progress_watchdog import ProgressWatchdog

_NAME = "forkserver"
_TIMEOUT_SECONDS = 30.0
"""Without an answer, after its imports: it has no work that takes long."""


class ForkserverWatch:
    """Calls the forkserver every second, from a thread of its own until `close`, and ends one that does not answer.

    Args:
      say: takes a line that a user should read.
    """

    def __init__(self, say: Callable[[str], None]):
        self._say = say
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="forkserver-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        watchdog = ProgressWatchdog(self._say)
        watchdog.began(_NAME, _TIMEOUT_SECONDS)
        pings = 0
        ping = ping_forkserver()
        try:
            while not self._closed.wait(HEARTBEAT_SECONDS):
                if select.select([ping], [], [], 0.0)[0]:
                    os.close(ping)
                    pings += 1
                    watchdog.heard(_NAME, Heartbeat(pings, "serving", "work"))
                    ping = ping_forkserver()
                for overdue in watchdog.look():
                    self._say(f"{_NAME}: {overdue.why}, and is killed; another one takes its place")
                    kill_forkserver()
                    watchdog.began(_NAME, _TIMEOUT_SECONDS)
        finally:
            os.close(ping)
