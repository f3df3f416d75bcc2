"""The example that trains SAC in a loop of its own on Ray."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import psutil
import pytest
from ended import still_running

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "ray_sac.py"
UNBOUNDED = """
import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv

class Unbounded(PendulumEnv):
    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-float("inf"), float("inf"), (1,))
"""


@pytest.fixture
def start():
    """Starts the example in a session of its own, with Ray's files in a directory that is removed."""
    started = []
    # Ray's sockets lie in it: their paths must be short.
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as directory:

        def start_example(*arguments):
            process = subprocess.Popen(
                [sys.executable, str(EXAMPLE), "--run-dir", f"{directory}/run", *arguments],
                cwd=ROOT,
                env={**os.environ, "RAY_TMPDIR": directory, "TMPDIR": directory},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            started.append(process)
            return process

        yield start_example
        for process in started:
            for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
                child.kill()
            process.kill()
            process.wait()


def descendants(process):
    return psutil.Process(process.pid).children(recursive=True)


def is_rollout(process):
    try:
        return "ray::rollout" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def assert_gone(processes, seconds=20.0):
    alive = still_running(processes, timeout=seconds)
    assert not alive, [process.cmdline() for process in alive]


def test_the_example_is_as_short_as_a_tutorial():
    lines = EXAMPLE.read_text().splitlines()
    assert len(lines) <= 120


@pytest.mark.score
@pytest.mark.slow
def test_it_reaches_its_goal_on_pendulum(start):
    process = start("--num-workers", "8", "--num-learners", "1", "--seed", "1")
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    steps, score = re.findall(r"([\d,]+) environment steps.*mean return (-[\d.]+)", output)[-1]
    assert float(score) >= -170 and int(steps.replace(",", "")) <= 30_000


@pytest.mark.slow
def test_ctrl_c_leaves_no_process(start):
    process = start("--num-workers", "2")
    seen, deadline = [], time.monotonic() + 300
    while not any(map(is_rollout, seen)):
        assert process.poll() is None and time.monotonic() < deadline
        seen = [child for child in descendants(process) if child.is_running()]
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert_gone(seen)


@pytest.mark.slow
def test_a_limit_that_is_reached_first_is_reported_by_the_exit_code_and_leaves_no_process(start):
    process = start("--num-workers", "2", "--max-steps", "1500", "--evaluate-every", "5000", "--goal", "0")
    seen = set()
    deadline = time.monotonic() + 300
    while process.poll() is None:
        assert time.monotonic() < deadline
        seen |= set(descendants(process))
        time.sleep(0.2)
    output = process.stdout.read()
    assert process.returncode == 1, output
    assert int(re.findall(r"([\d,]+) environment steps", output)[-1].replace(",", "")) >= 1500
    assert_gone(seen)


@pytest.mark.slow
def test_an_environment_that_sac_cannot_act_in_is_refused_in_one_line(start, tmp_path, monkeypatch):
    (tmp_path / "unbounded.py").write_text(UNBOUNDED)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    process = start("--env", "unbounded:Unbounded")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    (line,) = [line for line in output.splitlines() if line.startswith("ray_sac:")]
    assert "has bounds that are infinite" in line and "Traceback" not in output
