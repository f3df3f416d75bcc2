"""Values of observations that their space cannot hold, in every adapter that converts them, and in serving."""

import re

import dm_env
import gymnasium as gym
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from callboard.environments import DmEnvBatch, GymnasiumBatch, GymnasiumVectorBatch
from callboard.environments.adapters.single_environments import ProcessBatch
from callboard.environments.batches.given_observations import read_observations
from callboard.environments.batches.spaces import observation_encoding
from callboard.environments.multi_agent.pettingzoo_adapter import PettingZooEnvironment
from callboard.errors import CallboardError

IMAGE = spaces.Box(0, 255, (2, 2, 3), np.uint8)
BOOLS = spaces.Box(0, 1, (1,), bool)  # type: ignore[arg-type]
REFUSED = [
    (IMAGE, np.full((2, 2, 3), 0.5), "contains 0.5, which uint8, the dtype of its space, cannot hold: images have"),
    (IMAGE, np.full((2, 2, 3), 300), "contains 300, which uint8"),
    (IMAGE, np.full((2, 2, 3), -1), "contains -1, which uint8"),
    (IMAGE, np.full((2, 2, 3), np.nan), "contains nan, which uint8"),
    (spaces.Box(0, 9, (1,), np.int32), np.array([2.7]), "contains 2.7, which int32, the dtype of its space, cannot"),
    (BOOLS, np.array([2]), "contains 2, which bool"),
    (spaces.Discrete(4), 7, "is 7, which is outside of its space, 0 to 3: correct the space, or the observation"),
    (spaces.Discrete(4), -1, "is -1, which is outside"),
    (spaces.Discrete(4), 1.5, "contains 1.5, which int64"),
    (spaces.Discrete(4, start=2**40), 2**40 + 4, "is 1099511627780, which is outside of its space"),
    (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "is 3, which is outside of its space, 0 to 2"),
    (spaces.MultiDiscrete([2, 3], start=[5, 6]), np.array([4, 6]), "is 4, which is outside of its space, 5 to 6"),
]
KEPT = [
    (IMAGE, np.full((2, 2, 3), 7.0), 7),
    (IMAGE, np.full((2, 2, 3), 7, np.int64), 7),
    (spaces.Discrete(4, start=2**40), 2**40 + 3, 3),
    (spaces.Discrete(2), True, 1),
    (spaces.MultiDiscrete([2, 3], start=[5, 6]), np.array([6, 7.0]), 1),
    (BOOLS, np.array([1]), True),
    (spaces.Box(-1, 1, (1,), np.float64), [1], 1.0),
]


class Shows(gym.Env):
    """Shows one observation, from the second on."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, value):
        self.observation_space = space
        self.value = value

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.value, 1.0, False, False, {}


class Part(Shows):
    """Shows it as a part."""

    def __init__(self, space, value):
        super().__init__(spaces.Dict({"part": space}), {"part": value})


def game(space, value):
    """An environment of PettingZoo with one agent that sees the value."""

    class Game:
        metadata, possible_agents, render_mode = {"name": "game"}, ["a"], None
        unwrapped = property(lambda self: self)

        def observation_space(self, agent):
            return space

        def action_space(self, agent):
            return spaces.Discrete(2)

        def reset(self, seed=None, options=None):
            self.agents = ["a"]
            return {"a": value}, {}

        def close(self):
            pass

    return PettingZooEnvironment(Game(), "game")


@pytest.mark.parametrize("space, value, message", REFUSED)
def test_values_that_a_space_cannot_hold_are_refused_in_training_and_serving_alike(space, value, message):
    def in_line(place="", whose=""):
        return pytest.raises(CallboardError, match=f"^{whose}the observation{place} {re.escape(message)}[^\n]*$")

    single, part = GymnasiumBatch([Shows(space, value)], [1]), GymnasiumBatch([Part(space, value)], [1])
    single.reset()
    part.reset()
    with in_line():
        single.step(np.zeros(1, np.int32))
    with in_line(" at 'part'"):
        part.step(np.zeros(1, np.int32))
    with in_line():
        read_observations(observation_encoding(space), value)
    with in_line(whose="agent 'a' of game: "):
        game(space, value).reset(1)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_environments_are_refused_alike(mode):
    batch = GymnasiumVectorBatch(SyncVectorEnv([lambda: Shows(spaces.Discrete(4), 7)] * 2, autoreset_mode=mode), [1, 2])
    batch.reset()
    with pytest.raises(CallboardError, match="is 7, which is outside of its space, 0 to 3"):
        batch.step(np.zeros(2, np.int32))


def make_faint(index):
    return Shows(IMAGE, np.full((2, 2, 3), 0.5))


@pytest.mark.slow("daily")
def test_environments_in_processes_of_their_own_are_refused_alike():
    batch = ProcessBatch(make_faint, [1])
    try:
        batch.reset()
        with pytest.raises(CallboardError, match="contains 0.5, which uint8"):
            batch.step(np.zeros(1, np.int32))
    finally:
        batch.close()


class DmShows(dm_env.Environment):
    def observation_spec(self):
        return {"image": specs.BoundedArray((2,), np.uint8, 0, 255), "choice": specs.DiscreteArray(4)}

    def action_spec(self):
        return specs.DiscreteArray(2)

    def reset(self):
        return dm_env.restart({"image": np.zeros(2, np.uint8), "choice": 3})

    def step(self, action):
        image, choice = (np.full(2, 0.5), 3) if action else (np.zeros(2, np.uint8), 4)
        return dm_env.transition(1.0, {"image": image, "choice": choice})


@pytest.mark.parametrize("action, message", [(0, "at 'choice' is 4, which is outside"), (1, "at 'image' contains 0.5")])
def test_environments_of_dm_env_are_refused_alike(action, message):
    batch = DmEnvBatch([DmShows()])
    batch.reset()
    with pytest.raises(CallboardError, match=message):
        batch.step(np.array([action], np.int32))


@pytest.mark.parametrize("space, value, expected", KEPT)
def test_values_in_another_dtype_are_kept_if_they_fit(space, value, expected):
    batch = GymnasiumBatch([Shows(space, value)], [1])
    batch.reset()
    shown = batch.step(np.zeros(1, np.int32)).observation
    assert np.ravel(shown)[0] == expected
    given, _ = read_observations(observation_encoding(space), value)
    assert given.dtype == shown.dtype and np.array_equal(given, shown)
