"""Environments with several agents whose every step is written down beforehand."""

import dm_env
import numpy as np
from dm_env import specs

from callboard.environments import AgentStep, MultiAgentEnvironment, PolicyBatches, parse_mapping
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((1,), np.float32), specs.DiscreteArray(100))


def seen(number, reward=0.0, end=""):
    """What an agent receives, with the observation `[number]`; `end` is "", "terminated" or "truncated"."""
    return AgentStep(np.array([number], np.float32), reward, end == "terminated", end == "truncated", {"n": number})


class ScriptedAgents(MultiAgentEnvironment):
    """Plays scripted episodes: lists of what agents receive, from the reset to the end.  `taken` lists the actions."""

    def __init__(self, *episodes, agents=("a", "b"), specs=None):
        self.agents = agents
        self.specs = specs or dict.fromkeys(agents, SPEC)
        self._episodes = iter(episodes)
        self._episode = iter(())
        self.taken = []
        self.seeds = []
        self.tasks = []
        self.closed = 0

    def reset(self, seed=None):
        assert self.is_over
        self.seeds.append(seed)
        self._rest = list(next(self._episodes))
        return self._next()

    def step(self, actions):
        assert not self.is_over
        assert set(actions) == {agent for agent, step in self._last.items() if not (step.terminated or step.truncated)}
        self.taken.append(dict(actions))
        return self._next()

    def _next(self):
        self._last = self._rest.pop(0)
        self.is_over = not self._rest
        return dict(self._last)

    def state(self):
        return np.array([len(self._rest)], np.float32)

    state_size = 1

    def set_task(self, task):
        self.tasks.append(task)

    frames_per_second = 5.0

    def render(self):
        return np.full((4, 6, 3), 7, np.uint8)

    def close(self):
        self.closed += 1


def batches_of(*environments, mapping=None, policies=("p",), seeds=None):
    parsed = parse_mapping(mapping, environments[0].agents, dict.fromkeys(policies))
    return PolicyBatches(environments, parsed, policies, range(len(environments)) if seeds is None else seeds)


class Counting(dm_env.Environment):
    """A `dm_env` environment of agents 0 and 1, where agent 0 terminates after 2 steps, and time is up after 3."""

    def __init__(self, seed=0):
        self.seed = seed
        self.actions = []
        self.task = None

    def observation_spec(self):
        return {agent: specs.Array((2,), np.float64) for agent in (0, 1)}

    def action_spec(self):
        return {agent: specs.BoundedArray((), np.int64, 1, 3) for agent in (0, 1)}

    def reward_spec(self):
        return {agent: specs.Array((), np.float64) for agent in (0, 1)}

    def reset(self):
        self.time = 0
        return dm_env.TimeStep(dm_env.StepType.FIRST, None, None, self._observation())

    def step(self, actions):
        self.time += 1
        self.actions.append(actions)
        last = self.time == 3
        rewards = {agent: float(action) for agent, action in actions.items()}
        discounts = {0: 1.0 if self.time < 2 else 0.0, 1: 1.0}
        step_type = dm_env.StepType.LAST if last else dm_env.StepType.MID
        return dm_env.TimeStep(step_type, rewards, discounts, self._observation())

    def _observation(self):
        return {agent: np.array([agent, self.time]) for agent in (0, 1)}

    def info(self):
        return {1: {"time": self.time}}

    def set_task(self, task):
        self.task = task

    def render(self):
        return np.full((4, 6, 3), self.time, np.uint8)


class ScalarDiscount(Counting):
    """Terminates for all agents at once, with one discount for all."""

    def step(self, actions):
        timestep = super().step(actions)
        return timestep._replace(discount=0.0 if timestep.last() else 1.0)
