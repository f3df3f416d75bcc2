"""Training to a score from the command, on every launcher; and how soon it begins.

Each test prints its figures (`pytest -s`); those in `docs/` come from here.
"""

import datetime
import re
import shutil
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
        "steps": last["evaluator/environment_steps"],
        "return": last["evaluator/return"],
        "std": last["evaluator/return_std"],
    }


@pytest.mark.score
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
    # Beside other work, actors may end their steps before the evaluator sees the policy that has solved it.
    assert result["return"] >= 475 and result["steps"] <= 400_100, run.text()
    assert result["seconds"] < 180


@pytest.mark.score
@pytest.mark.parametrize("core, seed", [("lstm", 1), ("lstm", 2), ("lstm", 3), ("none", 1)])
def test_memory_is_what_hidden_velocities_need(start, tmp_path, core, seed):
    begun = time.time()
    arguments = ["--recipe", "impala-cartpole-masked", "--agent.network.core", core, "--seed", seed]
    run = start("train", *arguments, "--run-dir", tmp_path / "run", "--stop-return", 400)
    assert run.wait(timeout=600) == 0, run.text()
    best = max(row["evaluator/return"] for row in run.rows() if "evaluator/return" in row)
    print(f"\nCartPole-v1 without velocities, core {core}, seed {seed}: best {best:.1f}, {figures(run, begun)}")
    if core == "lstm":
        assert best >= 350
    else:
        assert best < 100


@pytest.mark.score
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_r2d2_remembers_hidden_velocities(start, tmp_path, seed):
    begun = time.time()
    run = start("train", "--recipe", "r2d2-cartpole-masked", "--seed", seed, "--run-dir", tmp_path / "run")
    assert run.wait(timeout=1800) == 0, run.text()
    best = max(row["evaluator/return"] for row in run.rows() if "evaluator/return" in row)
    print(f"\nR2D2 on CartPole-v1 without velocities, seed {seed}: best {best:.1f}, {figures(run, begun)}")
    assert best >= 350


@pytest.mark.score
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("task, goal, steps", [("cartpole", 475, 150_000), ("acrobot", -85, 200_000)])
def test_apex_reaches_its_goal(start, tmp_path, task, goal, steps, seed):
    reaches(start, tmp_path, f"apex-{task}", goal, steps, seed)


@pytest.mark.score
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sac_with_discrete_actions_reaches_475_on_cartpole(start, tmp_path, seed):
    reaches(start, tmp_path, "sac-cartpole", 475, 100_000, seed)


@pytest.mark.score
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_apex_reaches_9_on_minatar_breakout(start, tmp_path, seed):
    pytest.importorskip("minatar")
    reaches(start, tmp_path, "apex-minatar-breakout", 9, 1_000_000, seed)


def reaches(start, tmp_path, recipe, goal, steps, seed):
    begun = time.time()
    arguments = ["--recipe", recipe, "--launcher", "threads", "--seed", seed]
    run = start("train", *arguments, "--run-dir", tmp_path / "run")
    assert run.wait(timeout=3600) == 0, run.text()
    result = figures(run, begun)
    print(f"\n{recipe}, seed {seed}: {result}")
    assert result["return"] >= goal, run.text()
    assert result["steps"] <= steps


@pytest.mark.score
@pytest.mark.parametrize(
    "task, goal, steps, seeds",
    [
        ("cartpole", 500, 100_000, 3),
        ("acrobot", -85, 500_000, 1),
        ("pendulum", -250, 500_000, 1),
        ("cartpole-masked", 400, 500_000, 1),
    ],
)
def test_ppo_reaches_its_scores(start, tmp_path, task, goal, steps, seeds):
    for seed in range(1, seeds + 1):
        begun = time.time()
        # In one thread a seed always gives the same result.
        arguments = ["--recipe", f"ppo-{task}", "--launcher", "inline", "--seed", seed]
        run = start("train", *arguments, "--run-dir", tmp_path / "run", "--max-steps", steps, "--stop-return", goal)
        assert run.wait(timeout=900) == 0, run.text()
        result = figures(run, begun)
        print(f"\nPPO, {task}, seed {seed}: {result}")
        assert result["return"] >= goal and result["steps"] <= steps
        shutil.rmtree(tmp_path / "run")


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
