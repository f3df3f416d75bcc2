"""What became of runs, read from their files."""

import pytest
import yaml
from synthetic_runs import write_run

from callboard.launch.experiments.run_overview import overview_of_run
from callboard.launch.run_directory import run_lock as run_lock_module
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.run_lock import run_lock

ROWS = [(1000, 20.0), (2000, 45.0)]


@pytest.mark.parametrize(
    "options, state",
    [
        (["--max-steps=2000"], "done"),
        (["--max-steps=9000"], "stopped"),
        (["--max-steps=9000", "--stop-return=40"], "done"),
        (["--max-steps=9000", "--max-seconds=2"], "done"),
        (["--max-steps=9000", "--stop-return=50"], "stopped"),
    ],
)
def test_a_run_is_done_once_a_limit_or_its_goal_is_reached(tmp_path, options, state):
    found = overview_of_run(write_run(tmp_path / "run", ROWS, options=options, seed=3))
    assert found.state == state and found.steps == 2000 and found.scores == {"": 45.0}
    assert (found.agent, found.env, found.seed) == ("impala", "CartPole-v1", 3) and found.age > 0


@pytest.mark.parametrize("goal, state", [("0.7", "done"), ("0.8", "stopped")])
def test_returns_are_compared_as_float32_and_steps_exactly(tmp_path, goal, state):
    options = ["--max-steps=10000000", f"--stop-return={goal}"]
    found = overview_of_run(write_run(tmp_path / "run", [(9_999_999, 0.699999988)], options=options))
    assert found.state == state


def test_a_run_in_progress_and_one_without_results(tmp_path, monkeypatch):
    begun = write_run(tmp_path / "begun", [])
    assert overview_of_run(begun).state == "no results"
    with run_lock(RunDirectory(tmp_path / "begun").lock(), "--launcher inline"):
        # A lock of this process does not count for itself.
        monkeypatch.setattr(run_lock_module.os, "getpid", lambda: 1)
        assert overview_of_run(begun).state == "running"


def test_a_score_for_each_policy_and_lines_that_are_cut_off(tmp_path):
    run = write_run(tmp_path / "run", ROWS)
    with open(RunDirectory(tmp_path / "run").metrics, "a") as file:
        file.write('{"environment_steps": 3000, "hunters/evaluator/return": 1.5, "prey/evaluator/return": 2.5}\n{"env')
    found = overview_of_run(run)
    assert found.steps == 3000 and found.scores == {"": 45.0, "hunters": 1.5, "prey": 2.5}


def test_settings_of_another_type_are_damage(tmp_path):
    run = write_run(tmp_path / "run", ROWS)
    path = RunDirectory(tmp_path / "run").experiment
    settings = yaml.safe_load(path.read_text())
    for changed in ({"seed": float("inf")}, {"max_steps": "many"}, {"max_steps": [1]}):
        path.write_text(yaml.safe_dump({**settings, **changed}))
        assert overview_of_run(run).state == "damaged"


def test_damaged_files(tmp_path):
    for name, content in (("experiment.yaml", "agent: ["), ("experiment.yaml", "x"), ("metrics.jsonl", "{\n")):
        run = write_run(tmp_path / name / content[0].strip("{"), ROWS)
        RunDirectory(tmp_path / name / content[0].strip("{")).path.joinpath(name).write_text(content)
        assert overview_of_run(run).state == "damaged"
