"""Additions to the observations of several agents: the agent's index, and the state of the environment."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from dm_env import specs

from ...action_masks import MASK
from ...data import Nest
from ...errors import CallboardError
from ...specs import AGENT_INDEX, STATE, EnvironmentSpec, MultiDiscreteArray
from ..batches import encoding
from ..batches.encoding import Leaf
from .multi_agent import AgentStep, MultiAgentEnvironment, MultiAgentWrapper, state_vector

State = Literal["observations", "observations_and_actions", "environment"]
"""Contents of the leaf `state` of observations."""


class AgentIndices(MultiAgentWrapper):
    """Adds a leaf `agent_index` to every observation: the agent's index among all agents, float32 one-hot `[agents]`.

    Raises:
      CallboardError: an observation has a part of this name.
    """

    def __init__(self, environment: MultiAgentEnvironment):
        super().__init__(environment)
        count = len(self.agents)
        leaf = _vector(count, 0.0, 1.0)
        self.specs = {agent: _with_leaf(agent, spec, AGENT_INDEX, leaf) for agent, spec in environment.specs.items()}
        self._indices = dict(zip(self.agents, np.eye(count, dtype=np.float32), strict=True))

    def received(self, steps: dict[str, AgentStep]) -> dict[str, AgentStep]:
        return {agent: _with_value(step, AGENT_INDEX, self._indices[agent]) for agent, step in steps.items()}


class StateLeaves(MultiAgentWrapper):
    """Adds a leaf `state` to every observation: the environment's `state`, float32 `[state_size]`.

    Raises:
      CallboardError: the environment has no state, or an observation has a part of this name.
    """

    def __init__(self, environment: MultiAgentEnvironment):
        super().__init__(environment)
        size = environment.state_size
        if size is None:
            raise CallboardError(
                "the environment has no state of its own, or none of a known size (PettingZoo's 'state_space'): set "
                "agent_state to 'observations'"
            )
        leaf = _vector(size)
        self.specs = {agent: _with_leaf(agent, spec, STATE, leaf) for agent, spec in environment.specs.items()}

    def received(self, steps: dict[str, AgentStep]) -> dict[str, AgentStep]:
        state = state_vector(self._environment.state(), self._environment.state_size)
        return {agent: _with_value(step, STATE, state) for agent, step in steps.items()}


class ObservedState(MultiAgentWrapper):
    """Defines the environment's state as all agents' observations, in order, and optionally their last actions.

    Floating-point numbers are as they are, integers with bounds are scaled to [0, 1], choices are one-hot, and an
    `action_mask` is left out.  Absent agents have zeros, and so have actions after a reset.

    Args:
      environment: the environment.
      with_actions: whether the state also contains the last actions.
    """

    def __init__(self, environment: MultiAgentEnvironment, with_actions: bool):
        super().__init__(environment)
        self._parts: list[tuple[str, str, Nest, slice]] = []
        size = 0
        for agent in self.agents:
            spec = environment.specs[agent]
            for role, part in (("observation", spec.observation), *([("action", spec.action)] if with_actions else [])):
                length = _flat_size(part)
                self._parts.append((agent, role, part, slice(size, size + length)))
                size += length
        self._state = np.zeros(size, np.float32)

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        return self._observed(self._environment.reset(seed), {})

    def step(self, actions: Mapping[str, Nest]) -> dict[str, AgentStep]:
        return self._observed(self._environment.step(actions), actions)

    @property
    def state_size(self) -> int | None:
        return len(self._state)

    def state(self) -> np.ndarray:
        return self._state

    def _observed(self, steps: dict[str, AgentStep], actions: Mapping[str, Nest]) -> dict[str, AgentStep]:
        self._state = np.zeros_like(self._state)
        for agent, role, spec, place in self._parts:
            if role == "action" and agent in actions:
                _write_flat(spec, actions[agent], self._state[place])
            elif role == "observation" and agent in steps:
                _write_flat(spec, steps[agent].observation, self._state[place])
        return steps


def _vector(size: int, *bounds: float) -> Leaf:
    spec = specs.BoundedArray((size,), np.float32, *bounds) if bounds else specs.Array((size,), np.float32)
    return Leaf(spec, np.dtype(np.float32))


def _with_leaf(agent: str, spec: EnvironmentSpec, name: str, leaf: Leaf) -> EnvironmentSpec:
    return encoding.with_parts(spec, {name: leaf}, f"agent {agent!r}")


def _with_value(step: AgentStep, name: str, value: np.ndarray) -> AgentStep:
    return step._replace(observation=encoding.with_part_values(step.observation, {name: value}))


def _flat_size(spec: Nest) -> int:
    if isinstance(spec, dict):
        return sum(_flat_size(part) for key, part in spec.items() if key != MASK)
    if isinstance(spec, tuple):
        return sum(map(_flat_size, spec))
    if isinstance(spec, specs.DiscreteArray | MultiDiscreteArray):
        return int(np.sum(spec.num_values))
    return int(np.prod(spec.shape, dtype=np.int64))


def _write_flat(spec: Nest, value: Any, target: np.ndarray) -> int:
    """Writes a value to the beginning of `target`, which is zeros; returns the number of elements."""
    if isinstance(spec, dict | tuple):
        items = spec.items() if isinstance(spec, dict) else enumerate(spec)
        done = 0
        for key, part in items:
            if key != MASK:
                done += _write_flat(part, value[key], target[done:])
        return done
    if isinstance(spec, specs.DiscreteArray):
        target[int(value)] = 1.0
        return int(spec.num_values)
    if isinstance(spec, MultiDiscreteArray):
        counts = spec.num_values.ravel()
        ends = np.cumsum(counts)
        target[ends - counts + np.ravel(value)] = 1.0
        return int(ends[-1])
    flat = np.asarray(value, np.float32).reshape(-1)
    bounded = isinstance(spec, specs.BoundedArray) and np.issubdtype(spec.dtype, np.integer)
    if bounded:
        low, high = (
            np.broadcast_to(bound, spec.shape).reshape(-1).astype(np.float32) for bound in (spec.minimum, spec.maximum)
        )
        flat = (flat - low) / np.maximum(high - low, 1.0)
    target[: flat.size] = flat
    return flat.size
