"""Environments with infos and tasks, in each of the interfaces that are adapted.

An episode lasts as many steps as its task says, 3 by default; action 2 terminates it.  The infos of steps number them;
those of resets number the episodes and hold the task.
"""

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from callboard.errors import CallboardError

LIMIT = 3


class Counting(gymnasium.Env):
    """Takes its task as an option of `reset`."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self):
        self._episode = -1
        self._time = 0
        self._limit = LIMIT

    def reset(self, *, seed=None, options=None):
        self._limit = (options or {}).get("limit", LIMIT)
        return self.begin()

    def begin(self):
        self._episode += 1
        self._time = 0
        return self.observation(), {"limit": self._limit}

    def observation(self):
        return np.array([self._episode, self._time], np.float32)

    def step(self, action):
        self._time += 1
        info = {"time": self._time, "parts": {"half": self._time / 2}}
        if self._time == 2:
            info["second"] = True
        return self.observation(), 1.0, action == 2, self._time >= self._limit, info


class SetCounting(Counting):
    """Has a method for its task, which the next reset follows."""

    def __init__(self):
        super().__init__()
        self._next_limit = LIMIT

    def set_task(self, task):
        self._next_limit = LIMIT if task is None else task["limit"]

    def reset(self, *, seed=None, options=None):
        assert not options
        self._limit = self._next_limit
        return self.begin()


class PlainDm(dm_env.Environment):
    """The same for `dm_env`, without infos and tasks."""

    def __init__(self):
        self._counting = SetCounting()
        self._info = {}

    def reset(self):
        observation, self._info = self._counting.reset()
        return dm_env.restart(observation)

    def step(self, action):
        observation, reward, terminated, truncated, self._info = self._counting.step(action)
        if terminated:
            return dm_env.termination(reward, observation)
        return dm_env.truncation(reward, observation) if truncated else dm_env.transition(reward, observation)

    def observation_spec(self):
        return specs.Array((2,), np.float32)

    def action_spec(self):
        return specs.DiscreteArray(3)


class DmCounting(PlainDm):
    """Has methods for infos and tasks."""

    def set_task(self, task):
        self._counting.set_task(task)

    def info(self):
        return self._info


class WithoutOptions(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(Counting())

    def reset(self, *, seed=None):
        return self.env.reset(seed=seed)


class OwnVector(VectorEnv):
    """Has its own interface for a whole batch, no infos of ended episodes, and no tasks."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space = Counting.observation_space
    single_action_space = Counting.action_space

    def __init__(self, batch_size):
        self.num_envs = batch_size
        self._envs = [Counting() for _ in range(batch_size)]

    def reset(self, *, seed=None, options=None):
        return np.stack([env.reset()[0] for env in self._envs]), {}

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = zip(
            *(env.step(action) for env, action in zip(self._envs, actions, strict=True)), strict=True
        )
        over = np.array(terminated) | np.array(truncated)
        observations = [
            env.reset()[0] if ended else seen for env, ended, seen in zip(self._envs, over, observations, strict=True)
        ]
        info = {"time": np.array([info["time"] for info in infos]), "shared": 7}
        return np.stack(observations), np.array(rewards), np.array(terminated), np.array(truncated), info


class OwnVectorWithTasks(OwnVector):
    def __init__(self, batch_size):
        super().__init__(batch_size)
        self.tasks = []

    def set_task(self, task):
        self.tasks.append(task)


def next_step(batch_size):
    return SyncVectorEnv([Counting] * batch_size, autoreset_mode=AutoresetMode.NEXT_STEP)


def same_step(batch_size):
    return SyncVectorEnv([Counting] * batch_size, autoreset_mode=AutoresetMode.SAME_STEP)


def set_next_step(batch_size):
    return SyncVectorEnv([SetCounting] * batch_size, autoreset_mode=AutoresetMode.NEXT_STEP)


def set_same_step(batch_size):
    return SyncVectorEnv([SetCounting] * batch_size, autoreset_mode=AutoresetMode.SAME_STEP)


def same_step_processes(batch_size):
    return AsyncVectorEnv([Counting] * batch_size, autoreset_mode=AutoresetMode.SAME_STEP)


def next_step_processes(batch_size):
    return AsyncVectorEnv([SetCounting] * batch_size, autoreset_mode=AutoresetMode.NEXT_STEP)


def error_of(call):
    """What a call is refused with."""
    with pytest.raises(CallboardError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)
