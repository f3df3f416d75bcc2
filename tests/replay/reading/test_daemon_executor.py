"""Calls that block keep neither their caller nor the interpreter waiting."""

import subprocess
import sys
import threading

import pytest

from callboard.replay.reading import daemon_executor
from callboard.replay.reading.daemon_executor import DaemonExecutor

# The module is loaded by its path, since importing the package takes seconds.
BLOCKED = """
import runpy, sys, threading
begun = threading.Event()
executor = runpy.run_path(sys.argv[1])["DaemonExecutor"]("blocked", max_pending=1)
executor.submit(lambda: (begun.set(), threading.Event().wait()))
begun.wait()
"""


def test_calls_are_made_in_order():
    executor, made = DaemonExecutor("calls", max_pending=10), []
    for number in range(10):
        assert executor.submit(lambda number=number: made.append(number))
    assert executor.wait(10) and made == list(range(10))
    executor.close()


def test_the_queue_is_bounded():
    executor, release, made = DaemonExecutor("calls", max_pending=2), threading.Event(), []
    assert executor.submit(release.wait)
    assert [executor.submit(lambda: made.append(1)) for _ in range(3)] == [True, True, False]
    assert not executor.wait(0.01)
    release.set()
    assert executor.wait(10) and made == [1, 1]
    assert executor.submit(release.wait)
    executor.close()


def test_calls_in_the_queue_are_not_made_after_close():
    executor, release, made = DaemonExecutor("calls", max_pending=2), threading.Event(), []
    executor.submit(release.wait)
    executor.submit(lambda: made.append(1))
    executor.close()
    release.set()
    assert not executor.wait(0.05) and not made


def test_a_blocked_call_does_not_keep_the_process_alive():
    subprocess.run([sys.executable, "-c", BLOCKED, daemon_executor.__file__], check=True, timeout=60)


def test_the_next_use_of_the_executor_raises_the_error_of_a_call():
    executor, made = DaemonExecutor("calls", max_pending=2), []
    executor.submit(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            executor.wait(10)
        with pytest.raises(ZeroDivisionError):
            executor.submit(lambda: made.append(1))
    assert not made
    executor.close()
