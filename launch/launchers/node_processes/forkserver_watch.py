"""Detection of a forkserver that hangs, in which case nodes would neither start nor be reported as ended."""

import os
import select
import threading
import time
from collections.abc import Callable

from ....runtime.deadlines import Clock
from ...nodes.progress import HEARTBEAT_SECONDS, NodeHeartbeat
from ..supervision.progress_watchdog import ProgressWatchdog
from .forkserver import forkserver_starts, kill_forkserver, ping_forkserver

_NAME = "forkserver"
_TIMEOUT_SECONDS = 30.0
"""Time without a reply, after the imports; no request takes long."""


class ForkserverWatch:
    """Pings the forkserver regularly from a thread, until `close`, and kills it if it does not reply.

    Args:
      notify: takes a line to show to the user.
      clock: the clock; another one in tests.
      seconds: interval between two looks, in real time.
    """

    def __init__(
        self, notify: Callable[[str], None], clock: Clock = time.monotonic, seconds: float = HEARTBEAT_SECONDS
    ):
        self._notify = notify
        self._clock = clock
        self._seconds = seconds
        self.replies = 0
        """Number of replies of the forkserver so far."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="forkserver-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        watchdog, starts = ProgressWatchdog(self._notify, self._clock), 0
        ping = ping_forkserver()
        try:
            while not self._closed.wait(self._seconds):
                if select.select([ping], [], [], 0.0)[0]:
                    os.close(ping)
                    self.replies += 1
                    watchdog.heard(_NAME, NodeHeartbeat(self.replies, "serving", "work"))
                    ping = ping_forkserver()
                if starts != forkserver_starts():
                    # Its imports may take long on a busy machine.
                    starts = forkserver_starts()
                    watchdog.began(_NAME, _TIMEOUT_SECONDS)
                for overdue in watchdog.look():
                    self._notify(f"{_NAME}: {overdue.why}, and is killed; another one takes its place")
                    kill_forkserver()
                    os.close(ping)
                    ping = ping_forkserver()
        finally:
            os.close(ping)
