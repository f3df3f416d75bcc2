"""Environments with the interface of Gym before 0.26, of Gymnasium's class and of another."""

import gymnasium
import numpy as np
import pytest

from callboard import environments
from callboard.errors import CallboardError


class OldEnvironment(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, limited=False):
        self.limited = limited

    def reset(self):
        self.time = 0
        return np.array([self.np_random.uniform(-1, 1)], np.float32)

    def step(self, action):
        self.time += 1
        info = {"TimeLimit.truncated": True} if self.limited else {}
        return np.zeros(1, np.float32), float(action), self.time == 3, info


class Box:
    low, high, dtype, shape = -np.ones(1, np.float32), np.ones(1, np.float32), np.float32, (1,)


class Discrete:
    n = 2


class OfGym:
    """As one derived from `gym.Env`, whose class and spaces are not those of Gymnasium."""

    observation_space, action_space = Box(), Discrete()

    def seed(self, seed):
        self.random = np.random.default_rng(seed)

    def reset(self):
        self.time = 0
        return self.random.uniform(-1, 1, 1).astype(np.float32)

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), float(action), self.time == 3, {}


def first_rows(environment, steps=4):
    timesteps = [environment.reset()] + [environment.step(np.ones(2, np.int32)) for _ in range(steps)]
    return [[column[0].item() for column in timestep[1:]] for timestep in timesteps]


@pytest.mark.parametrize("factory", [OldEnvironment, OfGym])
def test_the_wrapper_gives_it_the_interface_of_gymnasium(factory):
    made = [environments.make(factory, 2, [1, 2], {"env_wrappers": "OldGym"}) for _ in range(2)]
    begun = [environment.reset().observation for environment in made]
    np.testing.assert_array_equal(*begun)
    assert begun[0][0] != begun[0][1], "each has a seed of its own"
    end = [1.0, 0.0, False, True]
    assert first_rows(made[0])[1:] == [[1.0, 1.0, False, False]] * 2 + [end, [0.0, 1.0, True, False]]


def test_a_time_limit_is_not_a_terminal_state():
    environment = environments.make(OldEnvironment, 2, [1, 2], {"env_wrappers": "OldGym", "limited": True})
    assert first_rows(environment)[3] == [1.0, 1.0, False, True]


def test_messages_name_the_wrapper():
    with pytest.raises(CallboardError, match=r'for the old interface of Gym, add env_wrappers="OldGym"$'):
        environments.make(OldEnvironment, 1, [1]).reset()
    with pytest.raises(CallboardError, match=r'is of type OfGym, .* old interface of Gym, add env_wrappers="OldGym"'):
        environments.make(OfGym, 1, [1])
    with pytest.raises(CallboardError, match="leave the wrapper OldGym out"):
        environments.make("CartPole-v1", 1, [1], {"env_wrappers": "OldGym"}).reset()


def test_a_space_that_gymnasium_does_not_have_is_refused():
    class Odd(OfGym):
        observation_space = object()

    with pytest.raises(CallboardError, match="the space object of the environment is not one of Gymnasium's"):
        environments.make(Odd, 1, [1], {"env_wrappers": "OldGym"})
