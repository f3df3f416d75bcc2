"""Detection of a forkserver that hangs, in which case nodes would neither start nor be reported as ended."""

import os
import select
import threading
from collections.abc import Callable

from ..nodes.progress import HEARTBEAT_SECONDS, Heartbeat
from .forkserver import kill_forkserver, ping_forkserver
from .progress_watchdog import ProgressWatchdog

_NAME = "forkserver"
_TIMEOUT_SECONDS = 30.0
"""Time without a reply, after the imports; no request takes long."""


class ForkserverWatch:
    """Pings the forkserver every second from a thread, until `close`, and kills it if it does not reply.

    Args:
      say: takes a line to show to the user.
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
