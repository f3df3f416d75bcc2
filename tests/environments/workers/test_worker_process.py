"""Workers end with what uses them, and nothing of them is left."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import worker_cases

from callboard import environments
from callboard.environments.workers import worker_process
from callboard.environments.workers.worker_process import WorkerEnded
from callboard.runtime.deadlines import wait_until

SAME = {"env_python": "same"}
CASES = os.path.dirname(worker_cases.__file__)


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_worker_that_was_killed_is_reported():
    batch = environments.make("CartPole-v1", 2, [1, 2], SAME)
    batch.reset()
    worker = batch.environments[0].worker
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerEnded, match=r"^environment 'CartPole-v1' under Python .* crashes its worker \(SIGKILL\)"):
        batch.step(np.zeros(2, np.int32))
    batch.close()
    assert gone(worker.pid)


@pytest.mark.slow("daily")
def test_nothing_is_left_when_the_user_of_a_worker_is_killed(tmp_path):
    """Neither the worker, which hangs here, nor a process that it has started."""
    code = (
        f"import sys, numpy as np; sys.path[:] = {sys.path!r}; from callboard import environments\n"
        f"from callboard.settings import own_modules; own_modules.search_working_directory({CASES!r})\n"
        "batch = environments.make('worker_cases:forks', 2, [1, 2], {'env_python': 'same'})\n"
        "batch.reset(); print('made', flush=True); import time; time.sleep(1000)"
    )
    file = tmp_path / "pids"
    user = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "WORKER_TEST_FILE": str(file)}
    )
    assert user.stdout is not None and user.stdout.readline() == b"made\n"
    pids = [int(text) for text in file.read_text().split()]
    assert not any(map(gone, pids))
    segments = set(os.listdir("/dev/shm"))
    user.kill()
    user.wait()
    user.stdout.close()
    assert wait_until(lambda: all(map(gone, pids)), 10)
    assert set(os.listdir("/dev/shm")) <= segments


def test_closing_ends_a_worker_that_hangs(monkeypatch):
    monkeypatch.setattr(worker_process, "_END_SECONDS", 0.5)
    batch = environments.make("worker_cases:Walk", 1, [1], {**SAME, "wrong": "hang"})
    worker = batch.environments[0].worker
    batch.reset()
    for _ in range(2):
        batch.step(np.zeros(1, np.int32))
    worker._channel.send()
    begun = time.monotonic()
    batch.close()
    assert time.monotonic() - begun < 5 and gone(worker.pid)


@pytest.mark.slow("daily")
def test_descriptors_are_closed():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        environments.make("CartPole-v1", 1, [1], SAME).close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
