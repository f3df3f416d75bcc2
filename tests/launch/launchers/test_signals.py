"""Signals to any process end a run with a checkpoint; a launcher that is killed leaves nothing."""

import os
import signal
import subprocess

import psutil
import pytest
from slow_cases import checkered

from callboard.launch.run_directory.checkpoints import step_of

pytestmark = pytest.mark.slow

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
ENDLESS = ("--max-steps", 100_000_000, "--stop-return", "null")


def ends_with_a_checkpoint(run, number):
    assert run.wait(timeout=60) == 128 + number, run.text()
    assert run.end_line().startswith(f"The run is over: stopped by {number.name}.")
    assert "Traceback" not in run.text() and "while the run was ending" not in run.text()
    checkpoint = max((run.run_dir / "checkpoints").glob("0*"))
    assert step_of(checkpoint) == run.rows()[-1]["learner/step"]
    assert run.leftovers() == []
    assert not (run.run_dir / "lock").exists()


@pytest.mark.parametrize("target, number", checkered(["launcher", "group", "node", "all"], SIGNALS))
def test_a_signal_ends_a_run_in_processes(train, number, target):
    run = train(*ENDLESS)
    run.wait_for_steps(1, "learner_steps")
    run.signal(number, target)
    ends_with_a_checkpoint(run, number)


@pytest.mark.parametrize("launcher, number", checkered(["inline", "threads", "hosts"], SIGNALS))
def test_a_signal_ends_a_run_of_another_launcher(train, launcher, number):
    run = train(*ENDLESS, "--launcher", launcher)
    run.wait_for_steps(1, "learner_steps")
    run.signal(number, "all")
    ends_with_a_checkpoint(run, number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_run_on_ray(train, number):
    """To the launcher: one to all processes ends Ray's own too."""
    run = train(*ENDLESS, "--launcher", "ray")
    run.wait_for_steps(1, "learner_steps")
    run.signal(number, "launcher")
    ends_with_a_checkpoint(run, number)


@pytest.mark.parametrize("begun, number", checkered(["forkserver", "directory", "logs"], SIGNALS))
def test_a_signal_while_the_run_begins(train, number, begun):
    run = train(*ENDLESS)
    conditions = {
        "forkserver": lambda: run.seen,
        "directory": run.run_dir.exists,
        "logs": lambda: list(run.run_dir.glob("logs/*.log")),
    }
    run.wait_until(lambda: conditions[begun]() or run.process.poll() is not None)
    run.signal(number, "group")
    assert run.wait(timeout=60) == 128 + number, run.text()
    assert "Traceback" not in run.text()
    assert run.leftovers() == []


def test_a_second_signal_hurries(train):
    """A stopped actor does not end by itself; with one more signal it is not waited for, and the checkpoint is."""
    run = train(*ENDLESS)
    run.wait_for_steps(1, "learner_steps")
    os.kill(run.pid_of("actor/1"), signal.SIGSTOP)
    run.signal(signal.SIGTERM, "all")
    with pytest.raises(subprocess.TimeoutExpired):
        run.process.wait(3.0)
    run.signal(signal.SIGTERM, "all")
    assert run.wait(timeout=60) == 143, run.text()
    assert "actor/1: did not end in time and is killed" in run.text()
    assert list((run.run_dir / "checkpoints").glob("0*"))
    assert run.leftovers() == []


@pytest.mark.parametrize("launcher", ["inline", "threads", "processes", "hosts"])
def test_nothing_outlives_a_launcher_that_is_killed_and_the_run_can_be_resumed(train, start, launcher):
    run = train(*ENDLESS, "--launcher", launcher, "--checkpoint-every", 1)
    run.wait_until(lambda: run.rows() and list((run.run_dir / "checkpoints").glob("0*")))
    run.look()
    run.process.kill()
    run.process.wait()
    resumed = start("train", "--resume", "--run-dir", run.run_dir)
    run.wait_until(lambda: not run.leftovers(), timeout=15)
    resumed.wait_for_steps(run.rows()[-1]["environment_steps"] + 1)
    second = start("train", "--resume", "--run-dir", run.run_dir)
    assert second.wait() == 2
    assert f"by process {resumed.process.pid} on" in second.end_line()
    resumed.signal(signal.SIGINT, "launcher")
    ends_with_a_checkpoint(resumed, signal.SIGINT)


def test_a_forkserver_that_is_killed_is_started_again_when_it_is_needed(train):
    run = train(*ENDLESS)
    run.wait_for_steps(1, "learner_steps")
    run.look()
    children = psutil.Process(run.process.pid).children()
    (forkserver,) = [process for process in children if "forkserver_process" in " ".join(process.cmdline())]
    forkserver.kill()
    run.signal(signal.SIGKILL, "node")
    run.wait_until(lambda: "actor/0:" in run.text())
    killed = run.rows()[-1]["environment_steps"]
    run.wait_for_steps(killed + 5000)
    run.signal(signal.SIGINT, "all")
    ends_with_a_checkpoint(run, signal.SIGINT)


PROCESS_1 = ("unshare", "--pid", "--fork", "--mount-proc")


@pytest.mark.parametrize("early, number", checkered([True, False], SIGNALS))
def test_process_1_of_a_container_takes_signals_from_the_first_moment(tmp_path, command_run, number, early):
    if subprocess.run([*PROCESS_1, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no process namespaces here")
    run = command_run(
        ["train", "--recipe", "impala-cartpole", "--run-dir", tmp_path / "run", *ENDLESS], tmp_path, PROCESS_1
    )
    try:

        def takes_signals():
            """Whether it handles SIGTERM; before, while Python starts, the kernel drops it."""
            for launcher in psutil.Process(run.process.pid).children():
                with open(f"/proc/{launcher.pid}/status") as file:
                    (caught,) = [int(line.split()[1], 16) for line in file if line.startswith("SigCgt")]
                return bool(caught & 1 << signal.SIGTERM - 1)
            return False

        run.wait_until(takes_signals)
        if not early:
            run.wait_for_steps(1, "learner_steps")
        (launcher,) = psutil.Process(run.process.pid).children()
        assert early or not [child for child in launcher.children() if child.status() == psutil.STATUS_ZOMBIE]
        launcher.send_signal(number)
        assert run.wait(timeout=60) == 128 + number, run.text()
        assert "Traceback" not in run.text()
        assert run.leftovers() == []
        assert early or list((run.run_dir / "checkpoints").glob("0*"))
    finally:
        run.end()
