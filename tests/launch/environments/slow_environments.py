"""Environments whose steps take long."""

import time

import gymnasium
import numpy as np


class SlowSteps(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        time.sleep(0.02)
        return np.zeros(4, np.float32), 1.0, False, False, {}
