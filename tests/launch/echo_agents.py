"""Environments with two agents of different spaces, each of which is rewarded for repeating what it sees."""

from collections.abc import Mapping

import numpy as np
from dm_env import specs

from callboard.data import Nest
from callboard.environments import AgentStep, MultiAgentEnvironment
from callboard.environments.batches.tasks import Task
from callboard.specs import EnvironmentSpec

_SIZES = {"left": 3, "right": 4}


class Echo(MultiAgentEnvironment):
    """Each agent sees a one-hot number; `right` leaves in the middle of the episode and comes back.

    Args:
      length: steps of an episode.
      alike: whether both agents have the spaces of `left`.
    """

    def __init__(self, length: int = 8, alike: bool = False):
        self.agents = tuple(_SIZES)
        self._sizes = {agent: 3 if alike else size for agent, size in _SIZES.items()}
        self.specs = {
            agent: EnvironmentSpec(
                specs.BoundedArray((size,), np.float32, 0.0, 1.0), specs.DiscreteArray(size, dtype=np.int32)
            )
            for agent, size in self._sizes.items()
        }
        self._length = length
        self._rng = np.random.default_rng(0)
        self._shown: dict[str, int] = {}

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._steps, self.is_over = 0, False
        return {agent: AgentStep(self._show(agent)) for agent in self.agents}

    def step(self, actions: Mapping[str, Nest]) -> dict[str, AgentStep]:
        self._steps += 1
        self.is_over = self._steps == self._length
        rewards = {agent: float(int(action) == self._shown[agent]) for agent, action in actions.items()}
        # "right" is absent for a step in the middle.
        present = [agent for agent in self.agents if agent == "left" or self._steps != self._length // 2]
        return {
            agent: AgentStep(self._show(agent), rewards.get(agent, 0.0), False, self.is_over, {"steps": self._steps})
            for agent in present
        }

    def render(self) -> np.ndarray:
        return np.full((8, 8, 3), self._steps, np.uint8)

    def close(self) -> None:
        pass

    def _show(self, agent: str) -> np.ndarray:
        self._shown[agent] = int(self._rng.integers(self._sizes[agent]))
        return np.eye(self._sizes[agent], dtype=np.float32)[self._shown[agent]]


class Taught(Echo):
    """Echo with tasks, `{length: 4}`, and a picture that becomes brighter with every step.  Counts its instances."""

    made = 0

    def __init__(self, length: int = 8, alike: bool = False):
        super().__init__(length, alike)
        type(self).made += 1
        self._own_length = self._next_length = length

    def set_task(self, task: Task) -> None:
        self._next_length = self._own_length if task is None else task["length"]

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        self._length = self._next_length
        return super().reset(seed)

    def render(self) -> np.ndarray:
        return np.full((64, 64, 3), 25 * self._steps, np.uint8)
