"""The watch over the forkserver: one that hangs is killed, and another one takes its place."""

import os
import signal
import time

import psutil
import pytest

from callboard.launch.launchers.node_processes.forkserver import ForkServer
from callboard.launch.launchers.node_processes.forkserver_watch import ForkserverWatch
from callboard.runtime.deadlines import wait_until


class Clock:
    """Advances by a second with every reading, once that is switched on."""

    def __init__(self):
        self.now, self.advances = 0.0, False

    def __call__(self):
        self.now += self.advances
        return self.now


@pytest.fixture
def server(monkeypatch):
    """The forkserver of this process, without TensorFlow."""
    server = ForkServer(preload="json")
    monkeypatch.setattr("callboard.launch.launchers.node_processes.forkserver._forkserver", server)
    yield server
    server.stop()


def test_a_forkserver_that_does_not_reply_is_killed(server):
    said, clock = [], Clock()
    watch = ForkserverWatch(said.append, clock, seconds=0.001)
    assert wait_until(lambda: watch.replies, 10, 0.001)
    process = server._process
    process.send_signal(signal.SIGSTOP)
    clock.advances = True
    assert wait_until(lambda: process.returncode is not None, 10, 0.001)
    clock.advances = False
    watch.close()
    assert process.returncode == -signal.SIGKILL
    assert said[:2] == [
        "forkserver: no heartbeat for 7 s, at most 30 s",
        "forkserver: no heartbeat for 31 s, and is killed; another one takes its place",
    ]


def test_another_forkserver_has_time_for_its_imports(server):
    said, clock = [], Clock()
    watch = ForkserverWatch(said.append, clock, seconds=0.001)
    assert wait_until(lambda: watch.replies, 10, 0.001)
    server._preload = "callboard.launch.preload"  # TensorFlow, for seconds.
    process = server._process
    process.kill()
    assert wait_until(lambda: server._process is not process, 10, 0.001)
    for _ in range(40):
        time.sleep(0.01)
        clock.now += 2
    watch.close()
    assert server._process.poll() is None
    assert not [line for line in said if "is killed" in line], said


@pytest.mark.slow
def test_a_stopped_forkserver_is_replaced(train):
    run = train("--max-steps", 100_000_000, "--stop-return", "null")
    run.wait_for_steps(5000)
    forkserver = psutil.Process(run.pid_of("actor/0")).parent()
    forkserver.suspend()
    os.kill(run.pid_of("actor/0"), signal.SIGKILL)
    run.wait_until(lambda: "forkserver: no heartbeat for 6 s" in run.text(), timeout=60)
    run.wait_until(lambda: "another one takes its place" in run.text(), timeout=60)
    killed = run.pid_of("actor/0")
    run.wait_until(lambda: run.pid_of("actor/0") != killed, timeout=60)
    run.wait_for_steps(run.rows()[-1]["environment_steps"] + 10_000)
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert run.leftovers() == []
