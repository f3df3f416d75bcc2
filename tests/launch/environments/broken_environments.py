"""Environments that fail, as users' environments do."""

import gymnasium
import numpy as np


class RaisesOnReset(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        raise RuntimeError("the simulator is not there")


class GivesNaN(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self._steps = 0

    def reset(self, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self._steps += 1
        value = np.nan if self._steps == 100 else 0.0
        return np.full(4, value, np.float32), 0.0, False, False, {}
