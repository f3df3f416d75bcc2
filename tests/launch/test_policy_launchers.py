"""Runs with two policies under several launchers: nodes that are killed, Ctrl-C and resuming, hosts and Ray."""

import json
import os
import pathlib
import re
import signal

import pytest
import yaml

from callboard.cli.command import main
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
        recipe = [] if "--resume" in arguments else ["--recipe", path]
        command = ["train", *recipe, "--run-dir", tmp_path / "run", *arguments]
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
    steps = ("left/learner/step", "right/learner/step")
    run.wait_until(lambda: all(run.rows()[-1][name] >= before[name] + 20 for name in steps))
    assert run.pid_of(node) != killed
    assert run.pid_of(other) == other_process, "only the group of the dead learner restarts"
    run.interrupt()
    assert run.wait(timeout=100) == 130, run.text()
    assert run.leftovers() == []


@pytest.mark.parametrize("node", ["actor/0", "coordinator/0", "replay/right/0"])
def test_the_run_ends_at_its_limit_after_the_death_of_a_node(train_both, node):
    limit = 12_000
    run = train_both("--launcher", "processes", "--max-steps", limit)
    run.wait_until(lambda: both_learn(run) and len(checkpoint_steps(run)) == 2)
    before, killed = run.rows()[-1], run.pid_of(node)
    assert before["environment_steps"] < limit / 2
    learners = {name: run.pid_of(f"learner/{name}/0") for name in ("left", "right")}
    os.kill(killed, signal.SIGKILL)
    assert run.wait(timeout=300) == 0, run.text()
    assert f"{node}: killed by SIGKILL; started again" in run.text()
    assert run.pid_of(node) != killed
    assert {name: run.pid_of(f"learner/{name}/0") for name in learners} == learners, "the learners continue"
    after = run.rows()[-1]
    assert limit <= after["environment_steps"] < limit + 8
    for name, step in checkpoint_steps(run).items():
        assert step == after[f"{name}/learner/step"] > before[f"{name}/learner/step"]
    assert run.leftovers() == []


def test_ctrl_c_and_resume(train_both):
    run = train_both("--launcher", "processes", "--max-steps", 10_000_000)
    run.wait_until(lambda: both_learn(run, 5))
    run.interrupt()
    assert run.wait(timeout=100) == 130, run.text()
    assert "Traceback" not in run.text() and run.leftovers() == []
    steps, before = checkpoint_steps(run), run.rows()[-1]
    assert steps == {name: before[f"{name}/learner/step"] for name in ("left", "right")}
    limit = before["environment_steps"] + 2000
    resumed = train_both("--resume", "--launcher", "processes", "--max-steps", limit)
    assert resumed.wait(timeout=500) == 0, resumed.text()
    for name, step in steps.items():
        assert re.search(rf"learner/{name}/0: continues from learner step {step:,}\b", resumed.text())
        assert checkpoint_steps(resumed)[name] > step
    assert limit <= resumed.rows()[-1]["environment_steps"] < limit + 8
    assert resumed.leftovers() == []


def test_two_policies_learn_on_ray(train_both):
    run = train_both("--launcher", "ray", "--ray-address", "local", "--max-steps", 600)
    assert run.wait(timeout=500) == 0, run.text()
    assert both_learn(run) and 600 <= run.rows()[-1]["environment_steps"] < 608
    assert set(checkpoint_steps(run)) == {"left", "right"}
    assert run.leftovers() == []


def test_a_run_at_a_url_and_resume(command_run, tmp_path, capsys):
    stored = tmp_path / "bucket" / "run"
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE))
    launcher = ["--launcher", "ray", "--ray-address", "local", "--run-dir", f"file://{stored}"]
    steps = {}
    for settings in (["--recipe", recipe, "--max-steps", 600], ["--resume", "--max-steps", 1200]):
        run = command_run(["train", *launcher, *settings], tmp_path, run_dir=stored, python_path=FOLDER)
        try:
            assert run.wait(timeout=500) == 0, run.text()
        finally:
            run.end()
        assert run.leftovers() == [] and run.rows()[-1]["environment_steps"] >= settings[-1]
        for name, step in steps.items():
            assert f"learner/{name}/0: continues from learner step {step:,}" in run.text()
        before, steps = steps, checkpoint_steps(run)
        assert set(steps) == {"left", "right"} and all(steps[name] > step for name, step in before.items())
    capsys.readouterr()
    assert main(["evaluate", f"file://{stored}", "--episodes", "4", "--checkpoint", "latest", "--json"]) == 0
    evaluation = json.loads(capsys.readouterr().out)
    assert len(evaluation["returns"]) == 4 and {"left/return", "right/return"} <= set(evaluation["by_policy"])


PLACEMENT = {"learner": ["a"], "replay": ["a"], "actor": {"a": 1, "b": 1}, "evaluator": ["b"]}


def test_a_saved_policy_is_needed_on_the_host_of_the_learners_alone(train_both, hosts, tmp_path):
    saved = train_both("--launcher", "inline", "--max-steps", 200, evaluator=False)
    assert saved.wait(timeout=200) == 0, saved.text()
    hosts = hosts("a", "b", share_directory=False)
    hosts.write_cluster(**PLACEMENT)
    # Hosts have working directories of their own.
    (tmp_path / "a").mkdir()
    saved.run_dir.rename(tmp_path / "a" / "saved")
    recipe = tmp_path / "hosts.yaml"
    policies = {**RECIPE["policies"], "old": {"weights": "saved/policies/right@latest"}}
    mapping = {"left": "left", "right": {"right": 1, "old": 1}}
    settings = {name: value for name, value in RECIPE.items() if name != "actors"}
    recipe.write_text(yaml.safe_dump({**settings, "policies": policies, "mapping": mapping, "max_steps": 3000}))
    for run in hosts.start_all(recipe=recipe, python_path=FOLDER):
        assert run.wait(timeout=400) == 0, run.text()
    assert hosts.leftovers() == []
    run = hosts.runs["a"]
    assert both_learn(run) and run.rows()[-1]["old/episode_return"] >= 0
    (final,) = [row for row in run.rows() if "evaluator/final" in row]
    assert {"evaluator/left/return", "evaluator/old/return"} <= set(final)


def test_a_saved_policy_that_is_missing_is_refused_on_the_host_of_the_learners(hosts, tmp_path):
    hosts = hosts("a", "b", share_directory=False)
    hosts.write_cluster(**PLACEMENT)
    recipe = tmp_path / "hosts.yaml"
    policies = {"left": {}, "right": {"weights": "nowhere/policies/right"}}
    settings = {name: value for name, value in RECIPE.items() if name != "actors"}
    recipe.write_text(yaml.safe_dump({**settings, "policies": policies}))
    run = hosts.start("a", recipe=recipe, python_path=FOLDER)
    assert run.wait(timeout=100) == 2
    (line,) = run.text().splitlines()
    missing = tmp_path / "a" / "nowhere" / "policies" / "right"
    assert f"there is no run in {missing} to take weights from" in line and "learner's machine" in line
    assert not run.run_dir.exists() and hosts.leftovers() == []
