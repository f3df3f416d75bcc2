"""Environments that implement the interface incorrectly, each in one way."""

from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from callboard import environments
from callboard.errors import CallboardError

OBSERVATION = np.zeros(3, np.float32)
BATCH = np.zeros((2, 3), np.float32)


def error_of(odd):
    """The error that a user reads who trains in an environment of this module."""
    with pytest.raises(CallboardError) as caught:
        environment = environments.make(f"odd_environments:{odd}", 2, [0, 1])
        environment.reset()
        for _ in range(2):
            environment.step(np.zeros(2, np.int32))
    return str(caught.value)


class Right(gymnasium.Env):
    observation_space: Any = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)
    outcome: Any = (OBSERVATION, 0.0, False, False, {})

    def reset(self, *, seed=None, options=None):
        return self.outcome[0], {}

    def step(self, action):
        return self.outcome


class OldStep(Right):
    outcome: Any = (OBSERVATION, 0.0, False, {})


class NoReward(Right):
    outcome: Any = (OBSERVATION, None, False, False, {})


class TextAsReward(Right):
    outcome: Any = (OBSERVATION, "1.5", False, False, {})


class SaysNo(Right):
    outcome: Any = (OBSERVATION, 0.0, False, "no", {})


class SaysNoLater(Right):
    """Its first step is right."""

    def step(self, action):
        outcome, self.outcome = self.outcome, (OBSERVATION, 0.0, "no", False, {})
        return outcome


class NoSeed(Right):
    def reset(self):
        return OBSERVATION, {}


class NoInfo(Right):
    def reset(self, *, seed=None, options=None):
        return OBSERVATION


class NoInfoOfTwo(Right):
    """Could be unpacked into two."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32)


class NoSpace(Right):
    observation_space = None


class Shapeless(Right):
    observation_space = spaces.Box(-1, 1, (0,), np.float32)
    outcome: Any = (np.zeros(0, np.float32), 0.0, False, False, {})


class PartShapeless(Right):
    observation_space = spaces.Dict({"arm": Right.observation_space, "hand": Shapeless.observation_space})


class EmptyDict(Right):
    observation_space = spaces.Dict({})
    outcome: Any = ({}, 0.0, False, False, {})


class MissingPart(Right):
    observation_space = spaces.Dict({"arm": Right.observation_space, "hand": Right.observation_space})
    outcome: Any = ({"arm": OBSERVATION}, 0.0, False, False, {})


class Words(Right):
    outcome: Any = ("north", 0.0, False, False, {})


class Mission(Right):
    observation_space = spaces.Dict({"image": Right.observation_space, "mission": spaces.Text(9)})


class SecretBatch(Right):
    outcome: Any = (BATCH, np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), {})


class OpenBatch(SecretBatch):
    num_envs = 2


class OldVector(VectorEnv):
    num_envs = 2
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_observation_space = Right.observation_space
    single_action_space = Right.action_space

    def reset(self, *, seed=None, options=None):
        return BATCH, {}

    def step(self, action):
        return BATCH, np.zeros(2), np.zeros(2, bool), {}


class SaysNoVector(OldVector):
    def step(self, action):
        return BATCH, np.zeros(2), ["no", "no"], np.zeros(2, bool), {}


class ColumnVector(OldVector):
    def step(self, action):
        return BATCH, np.zeros((2, 1)), np.zeros(2, bool), np.zeros(2, bool), {}


class VectorWithoutSingleSpaces(VectorEnv):
    num_envs = 2
    observation_space = Right.observation_space


class DmNoReward(dm_env.Environment):
    def observation_spec(self):
        return specs.Array((3,), np.float32)

    def action_spec(self):
        return specs.DiscreteArray(2)

    def reset(self):
        return dm_env.restart(OBSERVATION)

    def step(self, action):
        return dm_env.TimeStep(dm_env.StepType.MID, None, None, OBSERVATION)
