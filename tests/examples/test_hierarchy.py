"""The hierarchy of a manager and a worker: who is there when, and what they earn."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from callboard.environments import make_multi_agent, make_policy_batches, parse_mapping
from callboard.launch.experiments.settings import parse_experiment, read_recipe

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "examples.hierarchy:KeyAndChest"
RIGHT, LEFT, DOWN, UP = range(4)


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))


def rooms_of(step):
    return [int(step.observation[name]) for name in ("room", "key", "chest")]


def way(start, goal):
    """The worker's moves between the centers of two rooms."""
    moves = []
    if start % 2 != goal % 2:
        moves += [RIGHT if start % 2 == 0 else LEFT] * 4
    if start // 2 != goal // 2:
        moves += [DOWN if start // 2 == 0 else UP] * 4
    return moves


@pytest.mark.parametrize("seed", range(6))
def test_two_choices_open_the_chest(seed):
    environment = make_multi_agent(NAME, seed)
    steps = environment.reset(seed)
    room, key, chest = rooms_of(steps["manager"])
    assert len({room, key, chest}) == 3
    for start, goal, opened in ((room, key, False), (key, chest, True)):
        assert list(steps["manager"].observation["action_mask"]) == [1, 1, 1, 1]
        steps = environment.step({"manager": goal})
        assert list(steps["manager"].observation["action_mask"]) == [1, 0, 0, 0]
        assert (steps["worker"].observation["goal"], steps["worker"].reward) == (goal, 0)
        moves = way(start, goal)
        for number, move in enumerate(moves, 1):
            steps = environment.step({"manager": 0, "worker": move})
            worker = steps["worker"]
            assert (worker.terminated, worker.reward) == (number == len(moves), float(number == len(moves)))
        assert steps["manager"].observation["has_key"] == 1
        assert (steps["manager"].reward, steps["manager"].terminated, environment.is_over) == (opened, opened, opened)


def test_time_is_up_for_the_worker_and_then_for_the_manager():
    environment = make_multi_agent(NAME, 0)
    steps = environment.reset(0)
    goal = 3 - rooms_of(steps["manager"])[0]
    for choice in range(4):
        environment.step({"manager": goal})
        for _ in range(12):
            assert not environment.is_over
            steps = environment.step({"manager": 0, "worker": LEFT})
        assert steps["worker"].truncated and steps["worker"].reward == 0
        assert steps["manager"].truncated == environment.is_over == (choice == 3)


def test_walls():
    environment = make_multi_agent(NAME, 0)
    environment.reset(0)
    environment.unwrapped._place = (1, 1)
    environment.step({"manager": 3})
    cells = []
    for move in (UP, UP, RIGHT, RIGHT, DOWN, RIGHT, RIGHT, UP, LEFT):
        cells.append(int(environment.step({"manager": 0, "worker": move})["worker"].observation["cell"]))
    assert [(cell % 7, cell // 7) for cell in cells] == [
        (1, 0),
        (1, 0),
        (2, 0),
        (2, 0),
        (2, 1),
        (3, 1),
        (4, 1),
        (4, 0),
        (4, 0),
    ]


def test_what_the_policies_see():
    agents = make_multi_agent(NAME, 0).agents
    mapping = parse_mapping(None, agents, dict.fromkeys(agents))
    batches = make_policy_batches(NAME, 1, [0], {}, mapping, agents)
    timesteps = [batches.reset()]
    for _ in range(14):
        timesteps.append(batches.step({"manager": np.array([3], np.int32), "worker": np.array([LEFT], np.int32)}))
    flags = {
        agent: "".join(
            "B" if one[agent].first & one[agent].last else "F" if one[agent].first else "L" if one[agent].last else "."
            for one in timesteps
        )
        for agent in agents
    }
    # The worker is absent (B), appears, has 12 steps, and appears again after the manager has chosen again.
    assert flags == {"manager": "F..............", "worker": "BF...........LF"}


def test_the_recipe_trains_both():
    experiment = parse_experiment(None, read_recipe("examples/hierarchy.yaml"), [])
    assert list(experiment.policies) == ["manager", "worker"]


@pytest.mark.score
@pytest.mark.slow
def test_both_learn(tmp_path):
    command = [
        "train",
        "--recipe",
        "examples/hierarchy.yaml",
        "--launcher",
        "inline",
        "--run-dir",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "callboard.cli.command", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(row.get("manager/episode_return", 0.0) for row in rows) >= 0.8
