"""The previous action and reward as parts of observations."""

import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from callboard import environments
from callboard.errors import CallboardError
from callboard.specs import MultiDiscreteArray

SHOWN = {"env_previous_inputs": True}
PLACE = spaces.Box(-1, 1, (1,), np.float32)
PARTS = spaces.Dict({"move": spaces.Tuple((spaces.Discrete(3, start=5), PLACE)), "keys": spaces.MultiBinary(2)})


class Counting(gymnasium.Env):
    """Ends after two steps, and gives the number of the step as its reward."""

    def __init__(self, observation_space: spaces.Space = PLACE, action_space: spaces.Space = PARTS):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._steps += 1
        return self.observation_space.sample(), float(self._steps), self._steps == 2, False, {}


def test_what_was_done_is_shown_but_not_across_the_end_of_an_episode():
    environment = environments.make(Counting, 2, [0, 1], SHOWN)
    spec = environment.spec
    assert list(spec.observation) == ["observation", "previous_action", "previous_reward"]
    assert spec.observation["previous_action"]["keys"] == MultiDiscreteArray([3, 3])
    assert spec.observation["previous_action"]["move"][0] == specs.DiscreteArray(4)
    assert spec.encoding.spec() == spec
    actions = {"move": (np.array([2, 0]), np.array([[0.5], [-1]], np.float32)), "keys": np.array([[1, 0], [0, 0]])}
    timesteps = [environment.reset(), *(environment.step(actions) for _ in range(3))]
    for timestep, (number, reward) in zip(timesteps, ((0, 0), (1, 1), (1, 2), (0, 0)), strict=True):
        before = timestep.observation["previous_action"]
        np.testing.assert_array_equal(before["move"][0], number * np.array([3, 1]))
        np.testing.assert_array_equal(before["move"][1], number * actions["move"][1])
        np.testing.assert_array_equal(before["keys"], number * np.array([[2, 1], [1, 1]]))
        assert timestep.observation["previous_reward"].tolist() == [reward, reward]
        assert timestep.observation["observation"].shape == (2, 1)


def test_a_mask_and_other_parts_stay_and_a_part_of_that_name_is_refused():
    masked = spaces.Dict({"action_mask": spaces.Box(1, 1, (3,), np.int8), "place": PLACE})
    spec = environments.spec(lambda: Counting(masked, spaces.Discrete(3)), SHOWN)
    assert list(spec.observation) == ["action_mask", "place", "previous_action", "previous_reward"]
    taken = spaces.Dict({"previous_action": PLACE})
    with pytest.raises(CallboardError, match="^the observation of the environment has a part 'previous_action' alrea"):
        environments.spec(lambda: Counting(taken, spaces.Discrete(3)), SHOWN)
    environments.check(Counting, SHOWN)


def test_parts_that_are_numbered_become_the_part_observation():
    environment = environments.make(lambda: Counting(spaces.Dict({0: PLACE, 1: PLACE})), 2, [0, 1], SHOWN)
    timestep = environment.reset()
    assert list(timestep.observation) == list(environment.spec.observation)
    assert list(timestep.observation["observation"]) == [0, 1] and timestep.observation["observation"][1].shape == (
        2,
        1,
    )
