"""Training to a score from the command, on every launcher; and how soon it begins.

Each test prints its figures (`pytest -s`); those in `docs/` come from here.
"""

import datetime
import re
import statistics
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow


def figures(run, begun):
    """What a run that has ended needed: seconds, environment steps, and the evaluation that ended it."""
    evaluations = [row for row in run.rows() if "evaluator/return" in row]
    last = evaluations[-1]
    return {
        "seconds": time.time() - begun,
        "steps": last["evaluator/at_environment_steps"],
        "return": last["evaluator/return"],
        "std": last["evaluator/return_std"],
    }


@pytest.mark.parametrize(
    "launcher, seed",
    [("processes", 1), ("processes", 2), ("processes", 3), ("threads", 1), ("inline", 1)],
)
def test_impala_reaches_475_on_cartpole(train, launcher, seed):
    begun = time.time()
    run = train("--launcher", launcher, "--seed", seed)
    assert run.wait(timeout=300) == 0, run.text()
    result = figures(run, begun)
    print(f"\nCartPole-v1, {launcher}, seed {seed}: {result}")
    assert "has reached 475" in run.text().splitlines()[-1], run.text()
    assert result["steps"] <= 400_000
    assert result["seconds"] < 180


@pytest.mark.parametrize("core, seed", [("lstm", 1), ("lstm", 2), ("lstm", 3), ("none", 1)])
def test_memory_is_what_hidden_velocities_need(start, tmp_path, core, seed):
    begun = time.time()
    arguments = ["--recipe", "impala-cartpole-masked", "--agent.core", core, "--seed", seed]
    run = start("train", *arguments, "--run-dir", tmp_path / "run", "--stop-return", 400)
    assert run.wait(timeout=600) == 0, run.text()
    best = max(row["evaluator/return"] for row in run.rows() if "evaluator/return" in row)
    print(f"\nCartPole-v1 without velocities, core {core}, seed {seed}: best {best:.1f}, {figures(run, begun)}")
    if core == "lstm":
        assert best >= 350
    else:
        assert best < 100


def test_learning_begins_soon_after_the_command(start, tmp_path):
    ratios = []
    for attempt in range(5):
        begun = time.time()
        subprocess.run([sys.executable, "-c", "import tensorflow"], check=True, capture_output=True)
        bare = time.time() - begun
        run_dir = tmp_path / f"run-{attempt}"
        begun = time.time()
        run = start("train", "--recipe", "impala-cartpole", "--run-dir", run_dir, "--max-steps", 5000)
        assert run.wait() == 0, run.text()
        log = (run_dir / "logs" / "learner-0.log").read_text()
        clock = re.search(r"(\d+):(\d+):(\d+)\.(\d+) first learner step done", log)
        assert clock is not None
        hour, minute, second, milli = map(int, clock.groups())
        first = datetime.datetime.fromtimestamp(begun).replace(
            hour=hour, minute=minute, second=second, microsecond=milli * 1000
        )
        ratios.append((first.timestamp() - begun) / bare)
        print(f"\nimport tensorflow {bare:.2f} s, first learner step after {first.timestamp() - begun:.2f} s")
    print(f"ratios {[round(ratio, 2) for ratio in ratios]}, median {statistics.median(ratios):.2f}")
    assert statistics.median(ratios) <= 2.5
