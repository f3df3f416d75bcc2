"""What a run in the user's own process leaves on the screen."""

import os
import re
import subprocess
import sys

import pytest

REDIRECTED = """
import faulthandler, logging, os, pathlib, sys
from callboard.launch.launchers.one_process_logs import native_output_to
logging.basicConfig(format="%(message)s")
library = logging.getLogger("tensorflow")
library.propagate = False
library.addHandler(logging.StreamHandler(sys.stderr))
first, other = (pathlib.Path(sys.argv[1]) / name for name in ("first.log", "other.log"))
descriptors = len(os.listdir("/proc/self/fd"))
for _ in range(3):
    with native_output_to(first), native_output_to(other):
        os.write(2, b"native\\n")
        library.warning("library's")
        print("printed", file=sys.stderr)
        logging.warning("logged")
        kept = sys.stderr
    os.write(2, b"native afterwards\\n")
    logging.warning("logged afterwards")
    print("kept", file=kept)
assert len(os.listdir("/proc/self/fd")) == descriptors + 1
faulthandler.enable(2)
with native_output_to(first):
    os.abort()
"""


@pytest.mark.slow("daily")
def test_native_output_goes_to_a_file_and_that_of_python_and_of_crashes_to_the_terminal(tmp_path):
    done = subprocess.run([sys.executable, "-c", REDIRECTED, tmp_path], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert lines[:15] == ["printed", "logged", "native afterwards", "logged afterwards", "kept"] * 3, done.stderr
    assert lines[15] == "Fatal Python error: Aborted"
    assert (tmp_path / "first.log").read_text() == "native\nlibrary's\n" * 3
    assert not (tmp_path / "other.log").exists()


SCRIPT = """
import sys
import callboard

experiment = callboard.Experiment("ppo", env="CartPole-v1", max_steps=3000, evaluation_envs=2, evaluation_episodes=2)
with callboard.Session(experiment, launcher=sys.argv[1]) as session:
    session.train(steps=2500)
    session.evaluate()
    session.policy()
"""


SLOW = re.compile(r": .* for \d+ s, at most \d+ s$|: makes progress again, after \d+ s$")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["inline", "threads", "processes"])
def test_scripts_show_no_lines_of_libraries(launcher, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    command = [sys.executable, "-c", SCRIPT, launcher]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    # An announcement, the networks and why it ended, and on a busy machine also which nodes take long.
    lines = [line for line in done.stdout.splitlines() if not SLOW.search(line)]
    assert len(lines) <= 4, done.stdout
    assert not re.search(r"^\d{4}-|\.cc:\d+", done.stdout, re.MULTILINE)
