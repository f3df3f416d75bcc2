"""What is too large for this machine ends the command with a line that says so."""

import os
import subprocess
import sys

import pytest

HUGE = """
import gymnasium
from gymnasium import spaces


class Huge(gymnasium.Env):
    observation_space, action_space = spaces.Discrete(2**40), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 2**35, {}

    def step(self, action):
        return 2**35, 0.0, False, False, {}
"""


def command(folder, *arguments, prefix=()):
    started = [*prefix, sys.executable, "-m", "callboard", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(started, cwd=folder, env=environment, capture_output=True, text=True, timeout=540)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["check", "huge_spaces:Huge"], ["train", "ppo", "--env", "huge_spaces:Huge", "--run-dir", "run"]],
    ids=["check", "train"],
)
def test_a_space_that_is_too_large_is_one_line(arguments, tmp_path):
    (tmp_path / "huge_spaces.py").write_text(HUGE)
    done = command(tmp_path, *arguments)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr and "1,099,511,627,776" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_limit_of_memory_is_named(tmp_path):
    limited = ("bash", "-c", 'ulimit -v 2500000; exec "$@"', "-")
    arguments = ("train", "--recipe", "ppo-cartpole", "--launcher", "inline", "--run-dir", "run")
    done = command(tmp_path, *arguments, prefix=limited)
    assert done.returncode == 2, done
    assert "`ulimit -v` leaves this process 2.38 GiB" in done.stderr.splitlines()[-1], done
    assert not (tmp_path / "run").exists()
