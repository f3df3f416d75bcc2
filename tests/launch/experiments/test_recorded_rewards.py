"""Rewards of recorded episodes beside those that the environment computes for other goals."""

import types

import goal_environments
import numpy as np
import pytest

from callboard.environments.recorded.recorded_data import RecordedEpisode
from callboard.errors import CallboardError
from callboard.launch.experiments.recorded_sources import _check_rewards


class WithoutInfo(goal_environments.PointGoals):
    def compute_reward(self, achieved, desired, info):
        return float(np.linalg.norm(achieved - desired) < 0.3) - 1.0


def check(env, rewards):
    """Checks an episode with the goal (1, 1), in which the second action reaches it."""
    places = np.array([[0, 0], [0, 0.5], [1, 1], [1.5, 1.5]], np.float32)
    observation = {"observation": places, "achieved_goal": places, "desired_goal": np.ones_like(places)}
    action, reward, discount = np.zeros((3, 2), np.float32), np.array(rewards, np.float32), np.ones(3, np.float32)
    episode = RecordedEpisode(observation, action, reward, discount, False)
    data = types.SimpleNamespace(name="points", total_episodes=1, episodes=lambda indices: [episode for _ in indices])
    _check_rewards(data, types.SimpleNamespace(env=env, options_of_env={}))


def test_rewards_that_the_environment_computes_are_those_of_the_timesteps_after_actions():
    check(WithoutInfo, [-1, 0, -1])


@pytest.mark.parametrize(
    "env, rewards, message",
    [
        (
            WithoutInfo,
            [0, -1, -1],
            "a reward in the data set points is 0, and that of .* there is -1: name the env that",
        ),
        (
            goal_environments.PointGoals,
            [-1, 0, -1],
            "compute_reward fails: .*number.*; recorded episodes have no infos: ",
        ),
    ],
)
def test_other_rewards_are_refused_in_one_line(env, rewards, message):
    with pytest.raises(CallboardError, match=message) as caught:
        check(env, rewards)
    assert "\n" not in str(caught.value)
