"""Rewards of transitions for other goals, from the environments of a batch, however they are stepped and reset."""

import gymnasium
import numpy as np
import pytest
from goal_environments import STEPS, FlippingWithoutRewards, ForgetsInfo, PointGoals, Unbounded, next_step, same_step

from callboard.environments.adapters.gymnasium_batch import GymnasiumBatch
from callboard.environments.adapters.gymnasium_vector_batch import GymnasiumVectorBatch
from callboard.environments.batches.batched import EnvironmentWrapper
from callboard.errors import CallboardError

ENVS, SEEDS = 3, [3, 1, 2]
BATCHES = {
    "single": lambda: GymnasiumBatch([PointGoals() for _ in SEEDS], SEEDS),
    "wrapped": lambda: EnvironmentWrapper(
        GymnasiumBatch([gymnasium.wrappers.TimeLimit(PointGoals(), 100) for _ in SEEDS], SEEDS)
    ),
    "next step": lambda: GymnasiumVectorBatch(next_step(ENVS), SEEDS),
    "same step": lambda: GymnasiumVectorBatch(same_step(ENVS), SEEDS),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_the_rewards_for_the_goal_that_was_played_for_are_those_of_the_steps(kind):
    """With the infos of the same steps; where the final observation is lost, nothing can be computed."""
    batch = BATCHES[kind]()
    batch.keep_infos()
    rewards, timestep, rng, ends = batch.goal_rewards, batch.reset(), np.random.default_rng(0), 0
    for _ in range(4 * STEPS):
        before, timestep = timestep, batch.step(rng.uniform(-0.5, 0.5, (ENVS, 2)).astype(np.float32))
        infos, goals = rewards.infos(), timestep.observation
        for env in np.flatnonzero(~timestep.first & ~before.last):
            row = slice(env, env + 1)
            arguments = env, goals["achieved_goal"][row], goals["desired_goal"][row], [infos[env]]
            np.testing.assert_allclose(rewards.rewards(*arguments), timestep.reward[row], rtol=1e-6)
            assert rewards.terminated(*arguments) == (timestep.discount[row] == 0)
            ends += timestep.last[env]
        timestep.observation["achieved_goal"].flags.writeable = False
    assert ends >= ENVS


class Vectorized(PointGoals):
    """Takes goals one by one and together; counts its calls."""

    calls = 0

    def compute_reward(self, achieved, desired, info):
        Vectorized.calls += 1
        assert achieved.dtype == desired.dtype == np.float64
        return -np.linalg.norm(achieved - desired, axis=-1)


def test_a_method_that_takes_many_goals_is_called_once_for_all():
    rewards = GymnasiumBatch([Vectorized(terminates=False)], [0]).goal_rewards
    goals = np.random.default_rng(0).normal(size=(2, 5, 2)).astype(np.float32)
    expected = -np.linalg.norm(goals[0].astype(np.float64) - goals[1], axis=-1)
    for calls in (6, 7, 8):  # At first each by itself, and all together.
        np.testing.assert_allclose(rewards.rewards(0, *goals, [{}] * 5), expected, rtol=1e-6)
        assert Vectorized.calls == calls
    assert rewards.terminated(0, *goals, [{}] * 5) is None


class Whole(PointGoals):
    """Of many goals it gives one number."""

    def compute_reward(self, achieved, desired, info):
        return -float(not np.array_equal(achieved, desired))


def test_a_method_that_mistakes_many_goals_for_one_is_called_for_each():
    rewards = GymnasiumBatch([Whole()], [0]).goal_rewards
    goals = np.array([[0, 0], [1, 1], [2, 2]], np.float32)
    for _ in range(2):
        assert rewards.rewards(0, goals, goals[::-1], [{}] * 3).tolist() == [-1, 0, -1]


@pytest.mark.parametrize(
    "environment, message",
    [
        (ForgetsInfo, "the environment's compute_reward fails: .*missing"),
        (Unbounded, "compute_reward must give a finite number, not .nan"),
    ],
)
def test_a_faulty_method_is_named(environment, message):
    rewards = GymnasiumBatch([environment()], [0]).goal_rewards
    with pytest.raises(CallboardError, match=message):
        rewards.rewards(0, np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32), [{}] * 2)


@pytest.mark.parametrize("environment", [FlippingWithoutRewards, lambda: gymnasium.make("CartPole-v1")])
def test_there_are_none_without_goals_or_without_the_method(environment):
    assert GymnasiumBatch([environment()], [0]).goal_rewards is None


class ChangesInfo(PointGoals):
    """Its infos hold an array, alone and in a list, that it changes at every step."""

    def step(self, action):
        observation, *outcome, info = super().step(action)
        self._numbers = getattr(self, "_numbers", np.zeros(1))
        self._numbers += 1
        return observation, *outcome, {**info, "numbers": self._numbers, "parts": {"all": [self._numbers]}}


@pytest.mark.parametrize("vector", [False, True])
def test_infos_stay_what_they_were_when_they_came(vector):
    kind = gymnasium.vector.SyncVectorEnv
    batch = GymnasiumVectorBatch(kind([ChangesInfo]), [0]) if vector else GymnasiumBatch([ChangesInfo()], [0])
    batch.keep_infos()
    batch.reset()
    infos = []
    for _ in range(3):
        batch.step(np.zeros((1, 2), np.float32))
        infos += batch.goal_rewards.infos()
    assert [(float(info["numbers"][0]), float(info["parts"]["all"][0])) for info in infos] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    "spaces", [gymnasium.spaces.Discrete, lambda n, start: gymnasium.spaces.MultiDiscrete([n], start=[start])]
)
def test_goals_that_are_numbered_differently_are_refused(spaces):
    environment = PointGoals()
    environment.observation_space["achieved_goal"] = spaces(5, start=0)
    environment.observation_space["desired_goal"] = spaces(5, start=1)
    batch = GymnasiumBatch([environment], [0])
    with pytest.raises(
        CallboardError, match="numbers achieved_goal from .*0.* and desired_goal from .*1.*: number both"
    ):
        _ = batch.goal_rewards
