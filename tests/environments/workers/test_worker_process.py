"""Workers end with what uses them, and nothing of them is left."""

import os
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import worker_cases

from callboard import environments
from callboard.agents.impala import Impala
from callboard.environments.workers import worker_process
from callboard.environments.workers.worker_process import WorkerEnded, WorkerError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.node_processes.prepared_process import is_fault
from callboard.launch.processes.stop_signals import STOP_SIGNALS
from callboard.launch.run import run
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
    worker._waits = True
    begun = time.monotonic()
    batch.close()
    assert time.monotonic() - begun < 5 and gone(worker.pid)


@pytest.mark.parametrize(
    "how, message",
    [
        ("raise", r"^nothing to close \(worker_cases.py, line \d+\)$"),
        ("exit", "under Python .* ends its worker with exit code 3$"),
        ("hang", r"under Python .* \(same\): 'close' has not returned for 0.5 s, and is killed$"),
    ],
)
def test_what_goes_wrong_in_close_is_reported(how, message, monkeypatch):
    monkeypatch.setattr(worker_process, "_END_SECONDS", 0.5 if how == "hang" else 10.0)
    batch = environments.make("worker_cases:WrongAtEnd", 1, [1], {**SAME, "how": how})
    batch.reset()
    worker = batch.environments[0].worker
    with pytest.raises((WorkerError, WorkerEnded), match=message):
        batch.close()
    assert gone(worker.pid)
    batch.close()


@pytest.mark.parametrize("wrong, is_one", [("disconnect", True), ("raise", False)])
def test_an_error_that_is_a_fault_in_process_is_one_in_a_worker(wrong, is_one):
    """A node that a fault ends is restarted, one that an error of the user's code ends is not."""
    for own in ({}, SAME):
        batch = environments.make("worker_cases:Walk", 1, [1], {**own, "wrong": wrong})
        batch.reset()
        with pytest.raises(Exception, match="^lost") as raised:
            for _ in range(3):
                batch.step(np.zeros(1, np.int32))
        batch.close()
        assert is_fault(raised.value) == is_one


def test_an_answer_that_was_not_waited_for_is_not_that_of_close():
    batch = environments.make("worker_cases:WrongAtEnd", 1, [1], {**SAME, "how": "raise"})
    worker = batch.environments[0].worker
    worker._channel.send({"do": "call", "name": "no_such_method", "arguments": []})
    worker._waits = True
    with pytest.raises(WorkerError, match="^nothing to close"):
        batch.close()


def test_a_real_time_signal_is_named_by_its_number():
    batch = environments.make("CartPole-v1", 1, [1], SAME)
    os.kill(batch.environments[0].worker.pid, 40)
    with pytest.raises(WorkerEnded, match=r"crashes its worker \(signal 40\)"):
        batch.reset()
    batch.close()


def test_signals_that_stop_a_run_are_left_to_what_uses_a_worker():
    """Batch systems send them to all processes; what an environment has forked can still be ended by SIGTERM."""
    batch = environments.make("worker_cases:Walk", 1, [1], SAME)
    batch.reset()
    for number in STOP_SIGNALS:  # One by one: handlers run on the small stack of `faulthandler`.
        os.kill(batch.environments[0].worker.pid, number)
        batch.step(np.zeros(1, np.int32))
    assert batch.environments[0].call("signals_of_forked") == (["SIG_DFL", "SIG_IGN"],)
    batch.close()


@pytest.mark.parametrize("launcher", ["inline", "threads"])
@pytest.mark.slow
def test_a_worker_that_is_killed_ends_a_run_in_one_process_with_one_line(launcher, tmp_path, capfd):
    options = {"wrong": "crash", "length": 100}
    experiment = Experiment(
        Impala(batch_size=1, unroll_length=5),
        "worker_cases:Walk",
        env_python="same",
        env_options=options,
        check_env=False,
        actors=1,
        envs_per_actor=1,
        evaluator=False,
        run_dir=tmp_path / "run",
    )
    outcome = run(experiment, launcher)
    assert re.fullmatch(r"environment 'worker_cases:Walk' under .* crashes its worker \(SIGSEGV\)", outcome.error)
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.slow("daily")
def test_descriptors_are_closed():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        environments.make("CartPole-v1", 1, [1], SAME).close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_worker_is_seen_to_end_while_a_process_that_it_has_forked_lives():
    batch = environments.make("worker_cases:Walk", 1, [1], {**SAME, "wrong": "fork and crash"})
    batch.reset()
    begun = time.monotonic()
    with pytest.raises(WorkerEnded, match=r"crashes its worker \(SIGSEGV\)"):
        for _ in range(3):
            batch.step(np.zeros(1, np.int32))
    batch.close()
    assert time.monotonic() - begun < 30


def test_what_an_environment_has_started_in_a_session_of_its_own_ends_with_the_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKER_TEST_FILE", str(tmp_path / "pid"))
    batch = environments.make("worker_cases:leaves", 2, [1, 2], SAME)
    pid = int((tmp_path / "pid").read_text())
    assert not gone(pid)
    batch.close()
    assert gone(pid)


def test_a_worker_starts_like_a_program_of_the_user_and_ends_like_one(tmp_path, monkeypatch):
    """Also where the pipes have numbers that `select` does not take."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2000, limits[0]), limits[1]))
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setenv("WORKER_TEST_FILE", str(tmp_path / "ended"))
    monkeypatch.chdir(tmp_path)
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        batch = environments.make("worker_cases:started", 1, [1], SAME)
        assert batch.environments[0].worker._channel.reads > 1024
        batch.close()
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (tmp_path / "ended").exists()


@pytest.mark.slow
@pytest.mark.parametrize("context", ["spawn", "forkserver", "fork"])
def test_workers_start_processes_in_each_way(context):
    batch = environments.make("worker_cases:processes", 2, [1, 2], {**SAME, "context": context})
    batch.reset()
    batch.step(np.zeros(2, np.int64))
    batch.close()


def test_a_program_that_closes_nothing_ends_without_a_word():
    code = """
from callboard import environments
batch = environments.make("CartPole-v1", 1, [1], {"env_python": "same"})
batch.reset(), setattr(batch, "itself", batch)
print(batch.environments[0].worker.pid)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Exception ignored" not in done.stderr
    wait_until(lambda: gone(int(done.stdout)), 10)
