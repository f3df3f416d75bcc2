"""The combination lock: its rules, its tasks, and the effect that its recipe shows."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from callboard import environments
from callboard.launch.experiments.settings import parse_experiment, read_recipe

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCK = "examples.combination_lock:CombinationLock"


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))


def test_the_right_actions_open_it_and_a_wrong_one_ends_the_episode():
    from examples.combination_lock import CombinationLock

    lock = CombinationLock(length=4, combination=3)
    right = np.random.default_rng(3).integers(3, size=4)
    assert lock.reset() == (0, {})
    results = [lock.step(action) for action in right]
    assert [result[:4] for result in results] == [
        (1, 0, False, False),
        (2, 0, False, False),
        (3, 0, False, False),
        (4, 1, True, False),
    ]
    lock.reset(options={"start": 3})
    assert lock.step((right[3] + 1) % 3)[:4] == (3, 0, True, False)


def test_the_task_is_the_start():
    environment = environments.make(LOCK, 2, [0, 1], {"length": 4})
    environment.set_task({"start": 3})
    np.testing.assert_array_equal(environment.reset().observation, [3, 3])


def test_the_recipe_is_accepted_with_and_without_its_curriculum():
    recipe = read_recipe("examples/combination_lock.yaml")
    assert len(parse_experiment(None, recipe, []).curriculum) == 10
    assert parse_experiment(None, recipe, ["--curriculum", "[]"]).curriculum == ()


@pytest.mark.slow
@pytest.mark.parametrize("options, opened", [((), True), (("--curriculum", "[]", "--max-steps", "100000"), False)])
def test_it_is_learned_with_the_curriculum_and_not_without(tmp_path, options, opened):
    command = ["train", "--recipe", "examples/combination_lock.yaml", "--launcher", "inline", *options]
    done = subprocess.run(
        [sys.executable, "-m", "callboard.cli.command", *command, "--run-dir", str(tmp_path / "run")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    score = [row["evaluator/return"] for row in rows if "evaluator/return" in row][-1]
    assert score == (1.0 if opened else 0.0)
