"""Environments that fail, as users' environments do."""

import pathlib
import time

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


class HangsInStep(gymnasium.Env):
    """The first one of a machine that makes 500 steps never returns from the next, as long as there is no `hung` file.

    The file is in the working directory.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self._steps = 0

    def reset(self, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self._steps += 1
        if self._steps == 500:
            try:
                pathlib.Path("hung").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                while True:
                    time.sleep(1)
        return np.zeros(4, np.float32), 1.0, self._steps % 50 == 0, False, {}


class RewardsBecomeHuge(gymnasium.Env):
    """Rewards that are finite, and whose squares are not in float32, from the 200th step on."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self._steps = 0

    def reset(self, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        assert action in (0, 1)
        self._steps += 1
        return np.zeros(4, np.float32), 1e38 if self._steps > 200 else 0.0, self._steps % 10 == 0, False, {}


class NotesItsSeed(gymnasium.Env):
    """Appends the seed of its first reset to a file in the working directory."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        if seed is not None:
            with open("seeds.txt", "a", encoding="utf-8") as file:
                file.write(f"{seed}\n")
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 1.0, False, False, {}


class NeverResets(gymnasium.Env):
    """Writes the file `hung` into the working directory, and then computes for ever."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        pathlib.Path("hung").touch()
        while True:
            pass
