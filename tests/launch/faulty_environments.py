"""An environment with faults of all kinds, each where it is wanted."""

import os
import sys
import time

import gymnasium
import numpy as np


class Faulty(gymnasium.Env):
    """Does what `fault` names: `raise@step`, for example, or `nan`."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault=""):
        self.what, _, self.where = fault.partition("@")
        self.time = 0
        self.do("constructor")

    def do(self, where):
        if where != self.where:
            return
        if self.what == "raise":
            raise KeyError("no such map")
        if self.what == "exit":
            sys.exit(3)
        if self.what == "kill":
            print("last words", flush=True)
            os._exit(3)
        if self.what == "abort":
            os.abort()
        while self.what == "hang":
            time.sleep(1)

    def reset(self, *, seed=None, options=None):
        self.do("reset")
        return self.observation(), {}

    def step(self, action):
        self.time += 1
        self.do("step")
        reward = np.nan if self.what == "reward" else 1.0
        return self.observation(), reward, False, self.time % 10 == 0, {}

    def observation(self):
        value = {"nan": np.nan, "outside": 7.0}.get(self.what, 0.0) if self.time > 2 else 0.0
        return np.full(2, value, np.float32)

    def close(self):
        self.do("close")
