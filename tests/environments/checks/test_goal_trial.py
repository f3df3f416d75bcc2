"""Rewards of a run beside those that its environment computes for goals, before the run."""

import gymnasium
import pytest
from goal_environments import ForgetsInfo, PointGoals, next_step, same_step

from callboard import environments
from callboard.environments.checks.goal_trial import check_played_rewards
from callboard.errors import CallboardError


class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward


class DoubledThroughout(Doubled):
    def compute_reward(self, achieved, desired, info):
        return 2 * self.env.compute_reward(achieved, desired, info)


class More(gymnasium.Wrapper):
    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, reward + 1, *rest


class Twice(gymnasium.Wrapper):
    """Two steps with one action, and the reward of the second."""

    def step(self, action):
        self.env.step(action)
        return self.env.step(action)


class Raises(PointGoals):
    def step(self, action):
        raise KeyError("lost")


def normalized(num_envs):
    return gymnasium.wrappers.vector.NormalizeReward(next_step(num_envs))


def clipped(num_envs):
    return gymnasium.wrappers.vector.ClipReward(same_step(num_envs), -0.5, 0.5)


def check(env, wrappers=()):
    wrappers = [one if isinstance(one, dict) else f"{__name__}:{one.__name__}" for one in wrappers]
    batch = environments.make(env, 1, [0], {"env_wrappers": wrappers} if wrappers else {})
    try:
        check_played_rewards(batch, "points")
    finally:
        batch.close()


@pytest.mark.parametrize(
    "env, wrappers",
    [
        (PointGoals, ()),
        (PointGoals, ({"name": "TimeLimit", "max_episode_steps": 3},)),
        (PointGoals, (DoubledThroughout,)),
        (next_step, ()),
        (same_step, ()),
    ],
)
def test_equal_rewards_pass(env, wrappers):
    check(env, wrappers)


@pytest.mark.parametrize(
    "env, wrappers, message",
    [
        (PointGoals, ({"name": "ClipReward", "min_reward": -0.5, "max_reward": 0.5},), "the wrapper ClipReward does"),
        (PointGoals, ({"name": "NormalizeReward"},), "the wrapper NormalizeReward does not change: leave the wrapper"),
        (PointGoals, ({"name": "RepeatAction", "num_repeats": 2},), "the wrapper RepeatAction does not change"),
        (PointGoals, (Doubled,), "the wrapper Doubled does not change: .* or give it a compute_reward of its own$"),
        (PointGoals, (DoubledThroughout, Doubled), "the wrapper Doubled does not change"),
        (normalized, (), "the wrapper NormalizeReward does not change"),
        (clipped, (), "the wrapper ClipReward does not change"),
        (PointGoals, (More,), "^a reward of points is -0.01, and its compute_reward gives -1.01 for the same goal: "),
        (PointGoals, (Twice,), "^a wrapper of points makes 2 steps with one action, and compute_reward gives the rew"),
        (ForgetsInfo, (), "compute_reward fails|'step' raises KeyError"),
        (Raises, (), r"^environment 'points': 'step' raises KeyError: 'lost' \(test_goal_trial.py, line "),
    ],
)
def test_other_rewards_are_refused_in_one_line(env, wrappers, message):
    with pytest.raises(CallboardError, match=message) as caught:
        check(env, wrappers)
    assert "\n" not in str(caught.value)
