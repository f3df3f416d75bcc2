"""Measures a node, for `callboard top` and the display: CPU, memory, and the reasons for which it waits."""

import contextlib
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping

import psutil

from ....runtime.deadlines import Clock, Deadline
from ...processes.memory_limits import MemoryLimits
from ..progress import Progress
from .messages import NodeHealth

_SECONDS = 2.0
_WORKERS_SECONDS = 10.0
"""Interval between searches for the processes that this one has started, which read those of the whole machine."""


class NodeProbe:
    """Measures the health of the node of this process.

    Args:
      progress: the node's progress.
      seconds_waited: returns the seconds that the node has waited so far, by what it waited for, besides those that
        `progress` knows.
      weights: returns the learner step of the node's weights.
      clock: returns seconds.
    """

    def __init__(
        self,
        progress: Progress,
        seconds_waited: Callable[[], Mapping[str, float]],
        weights: Callable[[], int | None],
        clock: Clock = time.monotonic,
    ):
        self._progress = progress
        self._seconds_waited = seconds_waited
        self._weights = weights
        self._clock = clock
        self._process = psutil.Process()
        self._workers: list[psutil.Process] = []
        self._next_workers = Deadline(0.0, clock)
        self._limits = MemoryLimits()
        self._host = socket.gethostname()
        self._measured_at = clock()
        self._cpu_seconds = _cpu_seconds(self._process)
        self._waited: dict[str, float] = {}
        self._was_slow = False

    def measure(self) -> NodeHealth | None:
        """Returns the health over the last seconds; None if it was measured too recently."""
        now = self._clock()
        seconds = now - self._measured_at
        if seconds < _SECONDS:
            return None
        cpu_seconds = _cpu_seconds(self._process)
        waited = dict(self._progress.seconds_waited())
        for name, more in self._seconds_waited().items():
            waited[name] = waited.get(name, 0.0) + more
        waiting = {name: min(1.0, (total - self._waited.get(name, 0.0)) / seconds) for name, total in waited.items()}
        heartbeat = self._progress.heartbeat()
        is_slow = heartbeat.kind == "slow"
        workers = self._memory_of_workers()
        use = self._limits.tightest()
        health = NodeHealth(
            host=self._host,
            process=os.getpid(),
            cpu=(cpu_seconds - self._cpu_seconds) / seconds,
            memory=self._process.memory_info().rss + workers,
            activity=heartbeat.activity,
            waiting={name: fraction for name, fraction in waiting.items() if fraction >= 0.005},
            weights=self._weights(),
            starting=is_slow or self._was_slow,
            transfer=self._progress.transfer,
            evaluation=self._progress.evaluation,
            memory_of_workers=workers,
            memory_use=None if use is None else tuple(use),
        )
        self._was_slow = is_slow
        self._measured_at, self._cpu_seconds, self._waited = now, cpu_seconds, waited
        return health

    def _memory_of_workers(self) -> int:
        if self._next_workers.has_passed:
            self._next_workers.restart(_WORKERS_SECONDS)
            self._workers = self._process.children(recursive=True)
        memory = 0
        for worker in self._workers:
            with contextlib.suppress(psutil.Error):
                memory += worker.memory_info().rss
        return memory


def thread_stacks(first: str = "") -> str:
    """Returns the Python stacks of all threads of this process, newest call last.

    Args:
      first: name of the thread that comes first, before the main thread.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sys._current_frames()
    order = sorted(frames, key=lambda thread: (names.get(thread) != first, thread != main, names.get(thread, "")))
    own = threading.get_ident()
    parts = [
        f"thread {names.get(thread, thread)}:\n{''.join(traceback.format_stack(frames[thread])).rstrip()}"
        for thread in order
        if thread != own
    ]
    return "\n\n".join(parts)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
