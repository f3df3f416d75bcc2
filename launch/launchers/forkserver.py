"""The forkserver: a process that has imported TensorFlow once and forks for every node."""

import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
from typing import Any


def forkserver_context() -> Any:
    """The `multiprocessing` context whose processes are forks of the forkserver."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["callboard.launch.launchers.preload"])
    return context


def start_forkserver() -> None:
    """Starts it in the background, so that its imports go on while the caller does other things."""
    forkserver_context()
    multiprocessing.forkserver.ensure_running()


def stop_forkserver() -> None:
    """Ends the forkserver and multiprocessing's resource tracker; they start again when they are needed."""
    # Both end by themselves with this process, and have no public way to end sooner.
    server: Any = multiprocessing.forkserver._forkserver
    if server._forkserver_pid is not None:
        # It may still be importing, and would look up only after that.
        with contextlib.suppress(ProcessLookupError):
            os.kill(server._forkserver_pid, signal.SIGKILL)
    server._stop()
    tracker: Any = multiprocessing.resource_tracker._resource_tracker
    tracker._stop()
