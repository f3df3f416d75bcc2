"""Waiting for the end of processes."""

import psutil

from callboard.runtime.deadlines import Deadline


def still_running(processes, timeout):
    """Waits until processes have ended, and returns those that have not."""
    deadline = Deadline(timeout)
    while True:
        try:
            return psutil.wait_procs(processes, timeout=deadline.left)[1]
        except FileNotFoundError:
            # psutil 7 does not expect it: Linux since 6.16, while a process is being removed.
            continue
