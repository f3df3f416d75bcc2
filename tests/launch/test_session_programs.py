"""Programs that end without closing their session, or are interrupted."""

import subprocess
import sys

import pytest

UNCLOSED = """
import sys

from callboard import Experiment, Session
from callboard.agents.ppo import Ppo
from callboard.launch.launchers.registry import make_launcher

if __name__ == "__main__":
    agent = Ppo(unroll_length=20, batch_size=4, minibatches=2, epochs=1)
    experiment = Experiment(agent, "CartPole-v1", actors=1, envs_per_actor=4, evaluator=False, run_dir=sys.argv[1])
    session = Session(experiment, make_launcher(sys.argv[2], {})).start()
    session.train(steps=200)
    raise SystemExit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["launchpad", "threads", "processes"])
def test_a_program_that_does_not_close_its_session_ends(launcher, tmp_path):
    script, run_dir = tmp_path / "unclosed.py", tmp_path / "run"
    script.write_text(UNCLOSED)
    ended = subprocess.run([sys.executable, script, run_dir, launcher], timeout=120)
    assert ended.returncode == 3 and list(run_dir.glob("checkpoints/*"))


INTERRUPTED = """
import os
import signal
import sys
import threading

import psutil

from callboard import Experiment, Session
from callboard.agents.ppo import Ppo
from callboard.launch.launchers.registry import make_launcher


def interrupt_soon(program, run):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()


if __name__ == "__main__":
    agent = Ppo(unroll_length=20, batch_size=4, minibatches=2, epochs=1)
    experiment = Experiment(agent, "CartPole-v1", actors=1, envs_per_actor=4, evaluator=False, run_dir=sys.argv[1])
    launcher = make_launcher(sys.argv[2], dict(option.split("=") for option in sys.argv[3:]))
    try:
        with Session(experiment, launcher, add_nodes=interrupt_soon) as session:
            session.train(seconds=1000)
    except KeyboardInterrupt:
        print("left:", psutil.Process().children(recursive=True))
        raise SystemExit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        ["threads"],
        ["processes"],
        ["launchpad", "launch_type=local_mt"],
        ["launchpad", "launch_type=local_mp"],
        ["ray", "address=local"],
    ],
    ids="-".join,
)
def test_a_session_whose_nodes_start_can_be_interrupted(launcher, tmp_path):
    script, run_dir = tmp_path / "interrupted.py", tmp_path / "run"
    script.write_text(INTERRUPTED)
    ended = subprocess.run([sys.executable, script, run_dir, *launcher], timeout=120, capture_output=True, text=True)
    assert ended.returncode == 3 and "left: []" in ended.stdout, ended
    assert not (run_dir / "lock").exists()
