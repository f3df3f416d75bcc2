"""Processes that a process has started, and their end."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from .deadlines import Deadline

if TYPE_CHECKING:
    import psutil

_TERMINATE_SECONDS = 0.5
_KILL_SECONDS = 2.0
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Lets the kernel make descendants whose parent has ended children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> "list[psutil.Process]":
    """Returns all that a process has started and that still runs, also in sessions of their own."""
    import psutil  # Here, because the forkserver begins with the standard library alone.

    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def running(processes: "Iterable[psutil.Process]") -> list[int]:
    """Returns the ids of those processes that have not ended.

    A resource tracker of `multiprocessing` is left out: it removes shared resources once the others have ended.
    """
    import psutil

    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            # Its id may have become another one's.
            ended = not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
            if not ended and "resource_tracker" not in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


def end_descendants(pid: int) -> None:
    """Ends all that a process has started and that still runs, but for resource trackers."""
    end_processes(lambda: running(descendants(pid)))


def end_processes(find: Callable[[], Sequence[int]], reap: Callable[[], None] = lambda: None) -> None:
    """Ends processes: sends SIGTERM, then SIGKILL to those that are still running a moment later.

    Args:
      find: returns the ids of the processes that still run.
      reap: called repeatedly in the meantime.
    """
    for number, patience in ((signal.SIGTERM, _TERMINATE_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        deadline = Deadline(patience)
        signaled: set[int] = set()
        while found := find():
            for pid in found:
                if pid not in signaled:
                    signaled.add(pid)
                    with contextlib.suppress(OSError):
                        os.kill(pid, number)
            if deadline.has_passed:
                break
            time.sleep(0.01)
            reap()
        reap()
