"""Small environments and networks whose every number can be worked out, for the tests of agents."""

import functools
from typing import Any, NamedTuple

import dm_env
import gymnasium
import numpy as np
import tensorflow as tf
from dm_env import specs as dm_specs
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from callboard.data import Layout
from callboard.environments import DmEnvBatch, GymnasiumBatch, GymnasiumVectorBatch
from callboard.specs import EnvironmentSpec

ACTIONS = 3
SPEC = EnvironmentSpec(dm_specs.Array((2,), np.float32), dm_specs.DiscreteArray(ACTIONS))


def layout_of(
    spec: Any = SPEC, envs_per_actor: int = 2, replicas: int = 1, max_steps: int = 100_000, **other: int
) -> Layout:
    """A layout with one actor and one shard, unless `other` has other numbers."""
    sizes = {"actors": 1, "shards": 1, **other}
    return Layout(spec, envs_per_actor, replicas=replicas, seed=1, max_steps=max_steps, **sizes)


# The same episode in every interface.


class Ending(NamedTuple):
    """How an episode of a script ends."""

    length: int
    terminates: bool


class Script:
    """Episodes with given ends, the last one without."""

    def __init__(self, endings):
        self._endings = endings
        self._episode = -1
        self._time = 0

    def begin(self):
        self._episode += 1
        self._time = 0
        return self.observation

    def act(self, action):
        """Returns (reward, terminated, truncated)."""
        reward = reward_of(self._episode, self._time, action)
        self._time += 1
        ended = self._episode < len(self._endings) and self._time == self._endings[self._episode].length
        terminates = ended and self._endings[self._episode].terminates
        return reward, terminates, ended and not terminates

    @property
    def observation(self):
        return np.array([self._episode, self._time], np.float32)


def reward_of(episode, time, action):
    return 0.5 * action - 0.25 * time + episode


class DmScript(dm_env.Environment):
    def __init__(self, endings):
        self._script = Script(endings)

    def reset(self):
        return dm_env.restart(self._script.begin())

    def step(self, action):
        reward, terminated, truncated = self._script.act(action)
        make = dm_env.termination if terminated else dm_env.truncation if truncated else dm_env.transition
        return make(reward, self._script.observation)

    def observation_spec(self):
        return SPEC.observation

    def action_spec(self):
        return SPEC.action


class GymScript(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(ACTIONS)

    def __init__(self, endings):
        self._script = Script(endings)

    def reset(self, *, seed=None, options=None):
        return self._script.begin(), {}

    def step(self, action):
        reward, terminated, truncated = self._script.act(action)
        return self._script.observation, reward, terminated, truncated, {}


class WithoutFinal(SyncVectorEnv):
    """Loses the observations that end episodes where it resets in the same step."""

    def step(self, actions):
        *outcome, info = super().step(actions)
        return (*outcome, {key: value for key, value in info.items() if not key.endswith("final_obs")})


def vector(scripts, mode):
    makers = [functools.partial(GymScript, endings) for endings in scripts]
    return GymnasiumVectorBatch(WithoutFinal(makers, autoreset_mode=mode), range(len(scripts)))


INTERFACES = {
    "dm_env": lambda scripts: DmEnvBatch([DmScript(endings) for endings in scripts]),
    "gymnasium": lambda scripts: GymnasiumBatch([GymScript(endings) for endings in scripts], range(len(scripts))),
    "vector, next step": lambda scripts: vector(scripts, AutoresetMode.NEXT_STEP),
    "vector, same step": lambda scripts: vector(scripts, AutoresetMode.SAME_STEP),
}
FINAL_SHOWN = [name for name in INTERFACES if name != "vector, same step"]


class Corridor(gymnasium.Env):
    """Pictures of a position that begins at 0: the last one ends the episode, and time may be up before.

    Args:
      shape: of a picture, whose column at the position is white; there are as many positions as columns.
      goal: the last position.
      time_limit: in steps.
      rewards: the reward at each position.
    """

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, shape, goal, time_limit, rewards):
        self.observation_space = gymnasium.spaces.Box(0, 255, (*shape, 1), np.uint8)
        self._goal, self._time_limit, self._rewards = goal, time_limit, rewards

    def reset(self, *, seed=None, options=None):
        self._position = self._time = 0
        return self._picture(), {}

    def step(self, action):
        self._time += 1
        self._position = max(0, self._position + (1 if action else -1))
        reward = float(self._rewards[self._position])
        return self._picture(), reward, self._position == self._goal, self._time == self._time_limit, {}

    def _picture(self):
        picture = np.zeros(self.observation_space.shape, np.uint8)
        picture[:, self._position] = 255
        return picture


def weights_of(module: tf.Module) -> np.ndarray:
    """All variables, flat."""
    return np.concatenate([variable.numpy().ravel() for variable in module.variables])


class FixedNetwork:
    """Gives the outputs that it was made with."""

    normalizer = None
    spec = SPEC

    def __init__(self, outputs, state_spec=()):
        self._outputs = outputs
        self.state_spec = state_spec

    def regularization_loss(self):
        return 0.0

    def unroll(self, inputs, state, first, training=False):
        return self._outputs, state
