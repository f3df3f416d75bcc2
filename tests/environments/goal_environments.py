"""Environments with goals, in each way of resetting: a point that is moved, whose rewards need the info of the step."""

import functools

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from callboard.environments.bit_flipping import BitFlipping

STEPS = 6


class PointGoals(gymnasium.Env):
    """A point in a plane, which an action moves by up to 0.5; reaching the goal terminates if `terminates`.

    `compute_reward` takes single goals alone.  The info of a step holds its number in the episode.
    """

    metadata: dict = {}

    def __init__(self, terminates=True):
        box = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float64)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gymnasium.spaces.Dict({name: box for name in names})
        self.action_space = gymnasium.spaces.Box(-0.5, 0.5, (2,), np.float32)
        if terminates:
            self.compute_terminated = self._reached

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place, self._goal, self._number = self.np_random.uniform(-1, 1, 2), self.np_random.uniform(-1, 1, 2), 0
        return self._seen(), {}

    def step(self, action):
        self._place, self._number = self._place + action, self._number + 1
        info = {"number": self._number}
        reward = self.compute_reward(self._place, self._goal, info)
        reached = self._reached(self._place, self._goal, info) if hasattr(self, "compute_terminated") else False
        return self._seen(), reward, reached, self._number == STEPS, info

    def compute_reward(self, achieved, desired, info):
        if achieved.shape != (2,):
            raise ValueError("one at a time")
        return -1.0 - info["number"] / 100 + self._reached(achieved, desired, info)

    def _reached(self, achieved, desired, info):
        return bool(np.linalg.norm(achieved - desired) < 0.3)

    def _seen(self):
        return {"observation": self._place, "achieved_goal": self._place, "desired_goal": self._goal}


class ForgetsInfo(PointGoals):
    """Its rewards fail."""

    def compute_reward(self, achieved, desired, info):
        return info["missing"]


class Unbounded(PointGoals):
    def compute_reward(self, achieved, desired, info):
        return float("nan")


class FlippingWithoutRewards(gymnasium.Wrapper):
    """Has goals, and no rewards for them."""

    def __init__(self):
        super().__init__(BitFlipping())

    def has_wrapper_attr(self, name):
        return name != "compute_reward" and super().has_wrapper_attr(name)


def vector(num_envs, mode):
    return SyncVectorEnv([PointGoals] * num_envs, autoreset_mode=mode)


next_step = functools.partial(vector, mode=AutoresetMode.NEXT_STEP)
same_step = functools.partial(vector, mode=AutoresetMode.SAME_STEP)
