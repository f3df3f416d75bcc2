"""Runs with two policies under several launchers, and learners that are killed."""

import os
import pathlib
import signal

import pytest
import yaml

from callboard.launch.run_directory.checkpoints import Checkpoints, step_of
from callboard.launch.run_directory.layout import RunDirectory

pytestmark = pytest.mark.slow

FOLDER = pathlib.Path(__file__).parent
RECIPE = {
    "env": "echo_agents:Echo",
    "agent": {"name": "ppo", "unroll_length": 8, "batch_size": 8, "minibatches": 2, "epochs": 1},
    "policies": {
        "left": {},
        "right": {"name": "apex", "batch_size": 16, "replay": {"min_size": 50}},
    },
    "actors": 1,
    "envs_per_actor": 4,
    "evaluate_every": 2000,
    "evaluation_episodes": 4,
    "evaluation_envs": 2,
    "checkpoint_every": 2,
}


@pytest.fixture
def train_both(command_run, tmp_path):
    """Starts a run of PPO beside Ape-X."""
    runs = []

    def start(*arguments, **settings):
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump({**RECIPE, **settings}))
        command = ["train", "--recipe", path, "--run-dir", tmp_path / "run", *arguments]
        runs.append(command_run(command, tmp_path, python_path=FOLDER))
        return runs[-1]

    yield start
    for run in runs:
        run.end()


def checkpoint_steps(run):
    found = {name: Checkpoints(of_policy).latest() for name, of_policy in RunDirectory(run.run_dir).policies.items()}
    return {name: step_of(path) for name, path in found.items() if path is not None}


def both_learn(run, least=1):
    rows = run.rows()
    return bool(rows) and all(rows[-1].get(f"{name}/learner/step", 0) >= least for name in ("left", "right"))


@pytest.mark.parametrize(
    ("launcher", "inference"),
    [
        ("threads", "local"),
        ("threads", "central"),
        ("launchpad", "local"),
        ("launchpad", "central"),
        ("processes", "central"),
    ],
)
def test_two_policies_learn(train_both, launcher, inference):
    nodes = {"inference_nodes": 2, "actors": 2} if inference == "central" else {}
    run = train_both("--launcher", launcher, "--max-steps", 3000, inference=inference, **nodes)
    assert run.wait(timeout=500) == 0, run.text()
    assert both_learn(run) and run.rows()[-1]["environment_steps"] >= 3000
    (final,) = [row for row in run.rows() if "evaluator/final" in row]
    assert {"evaluator/left/return", "evaluator/right/return", "evaluator/agent/right/return"} <= set(final)
    assert set(checkpoint_steps(run)) == {"left", "right"}
    assert run.leftovers() == []


@pytest.mark.parametrize("node", ["learner/left/0", "learner/right/0"])
def test_the_run_survives_the_death_of_a_learner(train_both, node):
    run = train_both("--launcher", "processes", "--max-steps", 10_000_000)
    run.wait_until(lambda: both_learn(run) and len(checkpoint_steps(run)) == 2)
    before, killed = run.rows()[-1], run.pid_of(node)
    (other,) = {"learner/left/0", "learner/right/0"} - {node}
    other_process = run.pid_of(other)
    os.kill(killed, signal.SIGKILL)
    run.wait_until(lambda: f"{node}: killed by SIGKILL; started again" in run.text(), timeout=30)
    least = max(before[f"{name}/learner/step"] for name in ("left", "right")) + 20
    run.wait_until(lambda: both_learn(run, least))
    assert run.pid_of(node) != killed
    assert run.pid_of(other) == other_process, "only the group of the dead learner restarts"
    run.interrupt()
    assert run.wait(timeout=100) == 130, run.text()
    assert run.leftovers() == []
