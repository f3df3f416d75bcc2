"""Agents with their defaults learn from rewards of any scale: those of an environment times 1000 and times 0.001."""

import json
from typing import Any, NamedTuple

import pytest

from callboard.cli.command import main

pytestmark = pytest.mark.slow


class Task(NamedTuple):
    """What an agent reaches with seed 1 and rewards as they are times any factor."""

    env: str
    goal: float
    steps: int
    settings: tuple[str, ...] = ()
    """Options that save time: other settings than those of learning from rewards."""


SOON = ("--agent.replay.min-size", "1000")
SMALL_BATCHES = (*SOON, "--agent.batch-size", "64", "--agent.replay.samples-per-insert", "64")
TASKS = {
    "ppo": Task("CartPole-v1", 300, 50_000),
    "impala": Task("CartPole-v1", 300, 50_000),
    "appo": Task("CartPole-v1", 300, 50_000),
    "a2c": Task("CartPole-v1", 300, 100_000),
    "apex": Task("CartPole-v1", 300, 50_000),
    "r2d2": Task("CartPole-v1", 100, 50_000),
    "sac": Task("Pendulum-v1", -350, 6000, SOON),
    "td3": Task("Pendulum-v1", -350, 8000, SOON),
    "dmpo": Task("Pendulum-v1", -400, 12_000, SMALL_BATCHES),
}


@pytest.mark.parametrize("scale", [1000, 0.001])
@pytest.mark.parametrize("agent", TASKS)
def test_an_agent_learns_from_rewards_of_any_scale(tmp_path: Any, agent: str, scale: float) -> None:
    task = TASKS[agent]
    run_dir = tmp_path / "run"
    env = ["--env", "scaled_rewards:make", "--env-options.name", task.env, "--env-options.scale", str(scale)]
    steps = ["--max-steps", str(task.steps), "--evaluate-every", str(task.steps // 5), "--evaluation-episodes", "20"]
    where = ["--launcher", "inline", "--seed", "1", "--run-dir", str(run_dir)]
    goal = ["--stop-return", str(task.goal * scale)]
    assert main(["train", agent, *env, *steps, *goal, *task.settings, *where]) == 0
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert max(row["evaluator/return"] for row in rows if "evaluator/return" in row) >= task.goal * scale
