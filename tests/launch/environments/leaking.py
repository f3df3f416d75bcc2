"""An environment that keeps 200 kB of every step, at most 25 times a second: so fast on every machine."""

import time

import gymnasium
import numpy as np


class Leaking(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self._steps = 0
        self._kept = []
        self._next = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self._steps += 1
        if time.monotonic() > self._next:
            self._next = time.monotonic() + 0.04
            self._kept.append(np.ones(25000))
        return np.zeros(4, np.float32), 1.0, self._steps % 50 == 0, False, {}
