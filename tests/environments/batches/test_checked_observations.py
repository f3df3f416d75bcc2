"""Environments with action masks: they must fit the actions and leave one."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from callboard.environments import make
from callboard.environments import spec as spec_of
from callboard.errors import CallboardError


class Countdown(gymnasium.Env):
    """Action a is allowed while fewer than 4 - a steps were made; after `length` steps the episode ends."""

    action_space = spaces.Discrete(3)

    def __init__(self, length=3, size=3):
        self._length = length
        seen = spaces.Box(-1, 1, (1,), np.float32)
        self.observation_space = spaces.Dict({"observation": seen, "action_mask": spaces.Box(0, 1, (size,), np.int8)})

    def reset(self, *, seed=None, options=None):
        self._time = 0
        return self._observation(), {}

    def step(self, action):
        self._time += 1
        return self._observation(), 1.0, self._time == self._length, False, {}

    def _observation(self):
        mask = np.array([self._time < 3 - action for action in range(3)], np.int8)
        return {"observation": np.zeros(1, np.float32), "action_mask": mask}


NAME = f"{__name__}:Countdown"


def test_a_mask_may_forbid_everything_at_the_end_of_an_episode():
    environment = make(NAME, 2, [1, 2])
    environment.reset()
    for time in range(1, 4):
        timestep = environment.step(np.zeros(2, np.int32))
        np.testing.assert_array_equal(timestep.observation["action_mask"].sum(axis=1), [3 - time] * 2)
    assert timestep.last.all()
    assert environment.step(np.zeros(2, np.int32)).first.all()
    environment.close()


def test_a_mask_that_forbids_everything_before_the_end_is_an_error():
    environment = make(NAME, 2, [1, 2], {"length": 4})
    environment.reset()
    for _ in range(2):
        environment.step(np.zeros(2, np.int32))
    with pytest.raises(CallboardError, match="environment '.*:Countdown' has an action mask that allows nothing"):
        environment.step(np.zeros(2, np.int32))
    environment.close()


def test_a_mask_of_another_size_is_refused_before_anything_starts():
    with pytest.raises(CallboardError, match="^environment '.*:Countdown': 'action_mask' has 4 elements, .* 3 values$"):
        spec_of(NAME, {"size": 4})
