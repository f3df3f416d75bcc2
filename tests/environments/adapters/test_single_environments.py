"""Single Gymnasium environments as a batch, in this process and in processes of their own."""

import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest

from callboard import environments
from callboard.environments.adapters import single_environments
from callboard.environments.adapters.single_environments import ProcessBatch, split_singles
from callboard.errors import CallboardError, ProcessEnded
from callboard.runtime.descendants import end_processes, running

OPTIONS = {"env_wrappers": [{"name": "TimeLimit", "max_episode_steps": 7}]}


def assert_same(timestep, other):
    for array, expected in zip(timestep, other, strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


@pytest.mark.slow("daily")
def test_processes_show_the_same_timesteps_and_end_when_closed():
    here = environments.make("Acrobot-v1", 2, [3, 4], OPTIONS)
    there = environments.make("Acrobot-v1", 2, [3, 4], {**OPTIONS, "env_processes": True})
    assert isinstance(there._environment, ProcessBatch)
    assert there.spec == here.spec
    pids = [process.pid for process in there.environments[0].processes]
    assert len(pids) == 2 and os.getpid() not in pids
    there.keep_infos()
    assert_same(there.reset(), here.reset())
    ended = 0
    for index in range(20):
        actions = np.array([index % 3, index % 2], np.int32)
        timestep = there.step(actions)
        assert_same(timestep, here.step(actions))
        ended += timestep.last.sum()
    assert ended == 4
    assert len(there.infos.followed) == 2
    there.close()
    there.close()
    here.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.slow
def test_a_process_that_is_killed_is_reported_and_the_others_end():
    batch = environments.make("CartPole-v1", 2, [1, 2], {"env_processes": True})
    batch.reset()
    processes = batch.environments[0].processes
    os.kill(processes[1].pid, signal.SIGKILL)
    with pytest.raises(ProcessEnded, match=r"^processes of environment 'CartPole-v1' have ended: 1 \(exit code -9\)$"):
        for _ in range(3):
            batch.step(np.zeros(2, np.int32))
    batch.close()
    assert not any(process.is_alive() for process in processes)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("hangs", [False, True])
def test_what_environments_have_started_ends_with_their_processes(tmp_path, monkeypatch, hangs):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "launch/environments")
    started = tmp_path / "started"
    options = {"started": str(started), "orphan": True, "hangs": hangs, "env_processes": True}
    batch = environments.make("leaving_environments:LeavesProcesses", 2, [1, 2], options)
    # One environment, of this process, showed the spaces.
    ids = [int(line) for line in started.read_text().split()]
    own, theirs = ids[:3], ids[3:]
    end_processes(lambda: running(psutil.Process(pid) for pid in own if psutil.pid_exists(pid)))
    assert len(theirs) == 6
    batch.reset()
    if hangs:
        monkeypatch.setattr(single_environments, "_END_SECONDS", 0.5)
        batch.environments[0].step_async(np.zeros(2, np.int64))
    else:
        batch.step(np.zeros(2, np.int32))
    batch.close()
    assert running(psutil.Process(pid) for pid in theirs if psutil.pid_exists(pid)) == []


@pytest.mark.slow
def test_processes_end_with_the_process_that_made_them(tmp_path):
    import subprocess
    import sys

    program = tmp_path / "steps.py"
    program.write_text(
        "import time\n"
        "from callboard import environments\n"
        "if __name__ == '__main__':\n"
        "    batch = environments.make('CartPole-v1', 2, [1, 2], {'env_processes': True})\n"
        "    batch.reset()\n"
        "    print(*(process.pid for process in batch.environments[0].processes), flush=True)\n"
        "    time.sleep(100)\n"
    )
    maker = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in maker.stdout.readline().split()]
    assert len(pids) == 2 and all(map(psutil.pid_exists, pids))
    maker.kill()
    maker.wait()
    deadline = time.monotonic() + 20
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_the_spec_needs_no_processes(monkeypatch):
    monkeypatch.setattr("multiprocessing.get_context", lambda *args: pytest.fail("a process was to be started"))
    options = {**OPTIONS, "env_processes": True}
    assert environments.spec("CartPole-v1", options).observation.shape == (4,)


def test_only_gymnasium_environments_have_processes():
    message = r"is not made of single Gymnasium environments: let the factory make those, or leave env_processes out$"
    for name in ("callboard.environments.memory_task:Memory", "scripted_environments:vector_own"):
        with pytest.raises(CallboardError, match=message):
            environments.make(name, 2, [1, 2], {"env_processes": True})


def test_a_wrong_setting_is_refused():
    with pytest.raises(CallboardError, match="^env_processes must be true or false, not 3$"):
        environments.check("CartPole-v1", {"env_processes": 3})


def test_the_other_options_are_the_environments():
    singles, others = split_singles({"size": 3, "env_wrappers": "FlattenObservation", "env_processes": True})
    assert others == {"size": 3}
    assert singles.processes and singles.wrappers[0].kind is gymnasium.wrappers.FlattenObservation
    assert not split_singles(others)[0].wanted
