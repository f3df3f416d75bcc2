"""The forkserver's process: it ends what its forks have started, and itself with the process that it serves."""

import os
import subprocess
import sys

import forked_functions
import psutil
import pytest

from callboard.launch.launchers.node_processes.forkserver import CannotFork, ForkServer, wait_for_any
from callboard.runtime.deadlines import wait_until


@pytest.fixture
def server():
    server = ForkServer(preload="json")
    yield server
    server.stop()


def alive(pids, within=0.0):
    """Those of some processes that have not ended in time."""

    def runs(pid):
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    wait_until(lambda: not any(map(runs, pids)), within, 0.02)
    return [pid for pid in pids if runs(pid)]


@pytest.mark.slow("daily")
def test_what_a_process_has_started_ends_with_it(server):
    process = server.fork(forked_functions.start_others)
    stubborn, apart, fork = process.pipe.recv()
    process.pipe.send("end")
    # The fork holds the pipe open, and is ended before the end is reported.
    while process.status not in wait_for_any(process):
        pass
    assert process.join(10.0) and process.exitcode == 0
    assert alive([stubborn, fork]) == []
    server.stop()
    assert alive([apart]) == []


def test_an_import_that_fails_is_reported():
    server = ForkServer(preload="no_such_module")
    with pytest.raises(CannotFork, match="No module named 'no_such_module'"):
        server.fork(forked_functions.answer, "x")
    server.stop()


def test_nothing_outlives_a_starter_that_is_killed():
    code = "import forked_functions; forked_functions.start_others_and_wait()"
    path = os.pathsep.join(filter(None, sys.path))
    starter = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    pids = list(map(int, starter.stdout.readline().split()))
    starter.kill()
    starter.wait()
    assert alive(pids, within=10.0) == []
