"""Runs that learn from goals achieved later, by each agent that can, in each way of resetting, and continued."""

import json

import pytest

from callboard.cli.command import main

pytestmark = pytest.mark.slow

SMALL = ["--agent.normalize-rewards", "false", "--agent.batch-size", "16", "--agent.network.hidden-sizes", "[8]"]
SMALL += ["--agent.replay.min-size", "60", "--agent.replay.samples-per-insert", "4", "--agent.replay.size", "1000"]
SMALL += ["--envs-per-actor", "2", "--evaluation-episodes", "1", "--evaluation-envs", "1", "--actors", "1"]
GOALS = ["--agent.replay.hindsight.goals", "2"]


def rows_of(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "agent, env, options",
    [
        ("td3", "PointGoals", ["--agent.replay.hindsight.strategy", "episode"]),
        ("sac", "next_step", ["--agent.n-step", "3"]),
        ("d4pg", "same_step", ["--agent.replay.hindsight.horizon", "4"]),
        ("dmpo", "PointGoals", ["--agent.replay.hindsight.strategy", "final"]),
        ("td3", "same_step", ["--launcher", "threads", "--replay-shards", "2", "--actors", "2"]),
    ],
)
def test_it_learns_and_continues_with_its_replay(agent, env, options, tmp_path, capsys):
    run_dir = ["--run-dir", str(tmp_path / "run"), "--launcher", "inline", *options]
    command = ["train", agent, "--env", f"goal_environments:{env}", *SMALL, *GOALS, "--checkpoint-replay", *run_dir]
    assert main([*command, "--max-steps", "200"]) == 0, capsys.readouterr().err
    steps = rows_of(tmp_path / "run")[-1]["learner/step"]
    assert steps > 0
    resumed = ["train", "--resume", *run_dir[: 4 if "threads" not in options else None]]
    assert main([*resumed, "--max-steps", "300"]) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert "continues with" in said.out + said.err
    assert rows_of(tmp_path / "run")[-1]["learner/step"] > steps
    assert main([*resumed, "--max-steps", "400", "--agent.replay.hindsight.goals", "1"]) == 2
    assert "was made with another signature" in capsys.readouterr().err
