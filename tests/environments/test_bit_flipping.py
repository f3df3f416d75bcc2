"""Bit flipping: its rules, and the effect that its recipe shows."""

import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from callboard.environments.bit_flipping import BitFlipping
from callboard.errors import CallboardError
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment, read_recipe

RECIPE = "apex-bit-flipping"


class More(gymnasium.Wrapper):
    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, reward + 1, *rest


def test_an_action_flips_a_bit_and_the_goal_ends_the_episode():
    environment = BitFlipping(bits=6)
    seen, _ = environment.reset(seed=1)
    wrong = np.flatnonzero(seen["achieved_goal"] != seen["desired_goal"])
    assert 0 < len(wrong) < 6
    for place, bit in enumerate(wrong):
        seen, reward, terminated, truncated, info = environment.step(bit)
        done = place == len(wrong) - 1
        assert (reward, terminated, truncated, info) == (0 if done else -1, done, False, {"reached": done})
    environment.reset()
    environment.step(0)
    results = [environment.step(step % 2)[2:4] for step in range(5)]
    assert [truncated for _, truncated in results] == [False] * 4 + [True] or any(over for over, _ in results)


BITS = "callboard.environments.bit_flipping:BitFlipping"


@pytest.mark.parametrize(
    "options, message",
    [
        (["--inference", "central"], "not there with central inference"),
        (["--env-processes", "true"], "not there with env_processes"),
        (["--env", f"[{BITS}, {BITS}]"], "not there with several environments in an actor"),
        (["--env-wrappers", "NormalizeReward"], "the wrapper NormalizeReward does not change: leave"),
        (["--env-wrappers", "test_bit_flipping:More"], "^a reward of .* is 0, and its compute_reward gives -1 for"),
        (["--env", "goal_environments:FlippingWithoutRewards"], "has none there"),
        (["--env", "CartPole-v1"], "this is float32.4,.: set agent.replay.hindsight.goals to 0"),
    ],
)
def test_what_computes_no_rewards_for_other_goals_is_refused(options, message):
    with pytest.raises(CallboardError, match=message):
        check_experiment(parse_experiment(None, read_recipe(RECIPE), options))


@pytest.mark.parametrize(
    "agent, message",
    [
        ("r2d2", "is for agents that learn from windows, such as sac, td3, d4pg and apex"),
        (
            "sac",
            "rewards for the goals of replay.hindsight are not of the returns .* normalize_rewards to false",
        ),
    ],
)
def test_agents_that_cannot_learn_so_are_refused(agent, message):
    recipe = {"env": "callboard.environments.bit_flipping:BitFlipping", "agent": {"name": agent}, "actors": 1}
    rewards = [] if agent == "sac" else ["--agent.normalize-rewards", "false"]
    with pytest.raises(CallboardError, match=message):
        check_experiment(parse_experiment(None, recipe, ["--agent.replay.hindsight.goals", "4", *rewards]))


@pytest.mark.slow
@pytest.mark.parametrize("goals, most, reached", [(4, 60_000, True), (0, 20_000, False)])
def test_it_is_learned_with_further_goals_and_not_without(tmp_path, goals, most, reached):
    options = ["--agent.replay.hindsight.goals", str(goals), "--max-steps", str(most), "--launcher", "inline"]
    done = subprocess.run(
        [sys.executable, "-m", "callboard.cli.command", "train", "--recipe", RECIPE, *options]
        + ["--run-dir", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    score = [row["evaluator/return"] for row in rows if "evaluator/return" in row][-1]
    assert score >= -8 if reached else score <= -14.5
