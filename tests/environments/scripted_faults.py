"""One environment that gives one wrong thing in one call, in the interface of every adapter.

Calls are numbered from the reset, 0.  The task of an environment is `(fault, call)`; None is one that is right.
This module imports nothing of Callboard: workers make its environments too.
"""

from typing import Any

import dm_env
import gymnasium
import numpy as np
from dm_env import specs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

AGENTS = ("a", "b")
OBSERVATION = spaces.Dict(
    {
        "place": spaces.Box(-1, 1, (2,), np.float32),
        "turn": spaces.Discrete(4),
        "picture": spaces.Box(0, 255, (2,), np.uint8),
        "action_mask": spaces.MultiBinary(3),
    }
)
ACTION = spaces.Discrete(3)
RIGHT: dict[str, Any] = {
    "place": np.zeros(2, np.float32),
    "turn": 1,
    "picture": np.zeros(2, np.uint8),
    "action_mask": np.ones(3, np.int8),
}
MISSING = object()

OBSERVATIONS: dict[str, dict[str, Any]] = {
    "shape": {"place": np.zeros(3, np.float32)},
    "part": {"place": MISSING},
    "text": {"place": "x"},
    "nothing": {"place": None},
    "NaN": {"place": np.array([np.nan, 0], np.float32)},
    "infinite": {"place": np.array([0, -np.inf], np.float32)},
    "choice": {"turn": 4},
    "fraction": {"turn": 1.5},
    "dtype": {"picture": np.array([300, 0])},
    "no action": {"action_mask": np.zeros(3, np.int8)},
    "mask size": {"action_mask": np.ones(4, np.int8)},
    "mask value": {"action_mask": np.array([1, -1, 0], np.int8)},
    "text of numbers": {"place": np.array(["1", "2"])},
    "dates": {"place": np.array(["2020", "2021"], "datetime64[Y]")},
}
REWARDS: dict[str, Any] = {
    "reward NaN": np.nan,
    "reward infinite": np.inf,
    "reward text": "1.5",
    "reward nothing": None,
    "reward array": np.zeros(3),
}
ENDS: dict[str, dict[str, Any]] = {
    "terminated text": {"terminated": "no"},
    "truncated number": {"truncated": 2},
    "terminated array": {"terminated": np.array([True, False])},
}
DISCOUNTS = {"discount text": "1", "discount nothing": None, "discount NaN": np.nan, "discount large": 1.5}


class Script:
    """What the environment, or its agent `b`, gives in each call."""

    def __init__(self, task=None):
        self.task, self.calls = task, 0

    def begin(self):
        self.calls = 0
        return self.observation()

    def act(self):
        """Returns (observation, reward, terminated, truncated)."""
        self.calls += 1
        fault = self._fault
        self.discount = DISCOUNTS.get(fault, 1.0)
        ends = {"terminated": False, "truncated": False, **ENDS.get(fault, {})}
        return self.observation(), REWARDS.get(fault, 0.5), *ends.values()

    @property
    def _fault(self):
        return self.task[0] if self.task is not None and self.calls == self.task[1] else ""

    def observation(self):
        given = {**RIGHT, **OBSERVATIONS.get(self._fault, {})}
        return {key: part for key, part in given.items() if part is not MISSING}


class Scripted:
    """What all interfaces share."""

    observation_space, action_space = OBSERVATION, ACTION
    metadata: dict = {}
    render_mode = None

    def __init__(self, task=None):
        self.script = Script(task)

    def set_task(self, task):
        self.script.task = task

    @property
    def unwrapped(self):
        return self

    def close(self):
        pass


class Single(Scripted, gymnasium.Env):  # type: ignore[misc]
    def reset(self, *, seed=None, options=None):
        return self.script.begin(), {}

    def step(self, action):
        return *self.script.act(), {}


class Old(Scripted):
    """The interface of Gym."""

    def reset(self):
        return self.script.begin()

    def step(self, action):
        observation, reward, terminated, _ = self.script.act()
        return observation, reward, terminated, {}


class Vector(Scripted, VectorEnv):  # type: ignore[misc]
    """Two environments that are one object, of which the second may be wrong."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, task=None):
        super().__init__(task)
        self.num_envs = 2
        self.single_observation_space, self.single_action_space = OBSERVATION, ACTION

    def reset(self, *, seed=None, options=None):
        return self._batch(self.script.begin()), {}

    def step(self, actions):
        observation, reward, terminated, truncated = self.script.act()
        numbers = [self._pair(*pair) for pair in ((0.5, reward), (False, terminated), (False, truncated))]
        return self._batch(observation), *numbers, {}

    def _batch(self, wrong):
        return {key: self._pair(RIGHT[key], wrong[key]) for key in RIGHT if key in wrong}

    @staticmethod
    def _pair(right, wrong):
        if np.shape(right) == np.shape(wrong):
            return np.array([right, wrong])
        return np.array([wrong, wrong])


class Dm(Scripted, dm_env.Environment):
    def reset(self):
        return dm_env.restart(self.script.begin())

    def step(self, action):
        observation, reward, _, _ = self.script.act()
        return dm_env.TimeStep(dm_env.StepType.MID, reward, self.script.discount, observation)

    def observation_spec(self):
        return {
            "place": specs.BoundedArray((2,), np.float32, -1, 1),
            "turn": specs.DiscreteArray(4),
            "picture": specs.BoundedArray((2,), np.uint8, 0, 255),
            "action_mask": specs.BoundedArray((3,), np.int8, 0, 1),
        }

    def action_spec(self):
        return specs.DiscreteArray(3)


def _both(right, wrong):
    return dict(zip(AGENTS, (right, wrong), strict=True))


class DmAgents(Dm):
    def reset(self):
        return dm_env.restart(_both(RIGHT, self.script.begin()))

    def step(self, actions):
        observation, reward, _, _ = self.script.act()
        discounts = _both(1.0, self.script.discount)
        return dm_env.TimeStep(dm_env.StepType.MID, _both(0.5, reward), discounts, _both(RIGHT, observation))

    def observation_spec(self):
        return dict.fromkeys(AGENTS, super().observation_spec())

    def action_spec(self):
        return dict.fromkeys(AGENTS, super().action_spec())

    def reward_spec(self):
        return dict.fromkeys(AGENTS, specs.Array((), np.float64))


class Parallel(Scripted):
    possible_agents = list(AGENTS)

    def observation_space(self, agent):
        return OBSERVATION

    def action_space(self, agent):
        return ACTION

    def reset(self, seed=None, options=None):
        self.agents = list(AGENTS)
        return _both(RIGHT, self.script.begin()), {}

    def step(self, actions):
        observation, reward, terminated, truncated = self.script.act()
        ends = _both(False, terminated), _both(False, truncated)
        return _both(RIGHT, observation), _both(0.5, reward), *ends, {}


class Rllib(Scripted):
    possible_agents = list(AGENTS)
    observation_spaces = dict.fromkeys(AGENTS, OBSERVATION)
    action_spaces = dict.fromkeys(AGENTS, ACTION)

    def reset(self, *, seed=None, options=None):
        return _both(RIGHT, self.script.begin()), {}

    def step(self, actions):
        observation, reward, terminated, truncated = self.script.act()
        ends = _both(False, terminated), _both(False, truncated)
        return _both(RIGHT, observation), _both(0.5, reward), *ends, {}


def turns(task=None):
    """Agents by turns in PettingZoo's interface; each turn is a call."""
    from pettingzoo import AECEnv

    class Turns(Scripted, AECEnv):
        metadata = {"name": "turns", "is_parallelizable": False}
        possible_agents = list(AGENTS)

        def observation_space(self, agent):
            return OBSERVATION

        def action_space(self, agent):
            return ACTION

        def observe(self, agent):
            return self._seen[agent]

        def reset(self, seed=None, options=None):
            self._seen = _both(RIGHT, self.script.begin())
            self.agents, self.agent_selection = list(AGENTS), AGENTS[1]
            self.rewards, self._cumulative_rewards = _both(0.0, 0.0), _both(0.0, 0.0)
            self.terminations, self.truncations = _both(False, False), _both(False, False)
            self.infos = {agent: {} for agent in AGENTS}

        def step(self, action):
            if any(self.terminations.values()) or any(self.truncations.values()):
                self._was_dead_step(action)
                return
            self._cumulative_rewards[self.agent_selection] = 0.0
            observation, reward, terminated, truncated = self.script.act()
            self._seen = _both(RIGHT, observation)
            self._cumulative_rewards = _both(0.5, reward)
            self.rewards = _both(0.5, reward)
            self.terminations, self.truncations = _both(False, terminated), _both(False, truncated)

    return Turns(task)
