"""Masks from infos, which become parts of observations."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from callboard.environments import make
from callboard.environments import spec as spec_of
from callboard.environments.info_masks import MaskFromInfo
from callboard.errors import CallboardError

OPTIONS = {"env_wrappers": "callboard.environments.info_masks:MaskFromInfo"}


def test_the_masks_of_taxi():
    found = spec_of("Taxi-v4", OPTIONS)
    assert set(found.observation) == {"action_mask", "observation"} and found.observation["action_mask"].shape == (6,)
    environment, alone = make("Taxi-v4", 1, [3], OPTIONS), gymnasium.make("Taxi-v4")
    timestep, (observation, info) = environment.reset(), alone.reset(seed=3)
    for _ in range(20):
        np.testing.assert_array_equal(timestep.observation["action_mask"], [info["action_mask"]])
        assert timestep.observation["observation"] == observation
        action = int(np.flatnonzero(info["action_mask"])[-1])
        timestep = environment.step(np.array([action], np.int32))
        observation, *_, info = alone.step(action)
    environment.close()


class Parts(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, masks, action_space=None):
        self.action_space = action_space or spaces.MultiDiscrete([2, 3])
        self._infos = iter(masks)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), next(self._infos)

    def step(self, action):
        info = next(self._infos)
        return np.zeros(1, np.float32), 0.0, not info, False, info


def test_a_nest_of_masks_is_concatenated_and_the_last_may_be_missing():
    masks = (np.array([0, 1]), np.array([1, 0, 1]))
    environment = MaskFromInfo(Parts([{"legal": masks}, {"legal": masks}, {}]), key="legal")
    observation, _ = environment.reset()
    assert environment.observation_space.contains(observation)
    assert observation["action_mask"].tolist() == [0, 1, 1, 0, 1]
    environment.step([1, 0])
    observation, _, terminated, *_ = environment.step([1, 0])
    assert terminated and observation["action_mask"].tolist() == [1] * 5


def test_what_does_not_fit_is_refused():
    with pytest.raises(CallboardError, match="Parts gives no 'action_mask' in its info"):
        MaskFromInfo(Parts([{"legal": 1}])).reset()
    with pytest.raises(CallboardError, match="Parts has a mask of 4 elements in its info, for 5 values"):
        MaskFromInfo(Parts([{"action_mask": np.ones(4)}])).reset()
    with pytest.raises(CallboardError, match="Parts has no discrete actions"):
        MaskFromInfo(Parts([], spaces.Box(-1, 1, (2,), np.float32)))
