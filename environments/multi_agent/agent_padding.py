"""Common spaces for several agents: what they observe and choose from is padded to the largest."""

from collections.abc import Mapping, Sequence

import numpy as np
from dm_env import specs

from ...action_masks import MASK
from ...data import Nest
from ...errors import CallboardError
from ...specs import EnvironmentSpec, MultiDiscreteArray, describe, zeros
from ..batches.space_sizes import check_array
from .multi_agent import AgentStep, MultiAgentEnvironment, MultiAgentWrapper

_REST = "observation"
_FIX = "leave agent_padding out, and give these agents policies of their own"


class PaddedAgents(MultiAgentWrapper):
    """Gives all agents the same spaces, so that agents with different ones can share a policy.

    Arrays of an observation become as large as the largest of this name, with zeros at the end of every axis, and an
    agent without a part has zeros there.  Discrete action spaces are padded to the largest; an
    `action_mask` forbids the actions that an agent does not have itself.

    Raises:
      CallboardError: parts of observations have different dtypes or numbers of axes, or actions that are not discrete
        differ.
    """

    def __init__(self, environment: MultiAgentEnvironment):
        super().__init__(environment)
        own = environment.specs
        parts = {agent: _parts(own[agent].observation) for agent in self.agents}
        names = list(dict.fromkeys(name for of_agent in parts.values() for name in of_agent if name != MASK))
        common: dict[str, Nest] = {
            name: _common(name, [of_agent[name] for of_agent in parts.values() if name in of_agent]) for name in names
        }
        self._observation = dict(common)
        actions = [own[agent].action for agent in self.agents]
        action = actions[0]
        self._sizes: dict[str, int] = {}
        if any(other != action for other in actions):
            if not all(isinstance(one, specs.DiscreteArray) for one in actions):
                first = next(other for other in actions if other != action)
                raise CallboardError(
                    f"only discrete actions can be padded, and agents have {describe(action)} and {describe(first)}: "
                    + _FIX
                )
            self._sizes = {agent: int(own[agent].action.num_values) for agent in self.agents}
            action = specs.DiscreteArray(max(self._sizes.values()), dtype=np.int32)
        elif any(MASK in of_agent for of_agent in parts.values()):
            if not isinstance(action, specs.DiscreteArray):
                raise CallboardError(f"an 'action_mask' can be padded for one discrete action alone: {_FIX}")
            self._sizes = dict.fromkeys(self.agents, int(action.num_values))
        if self._sizes:
            common[MASK] = specs.BoundedArray((int(action.num_values),), np.int32, 0, 1)
        # One array without a mask stays an array.
        self._is_array = not self._sizes and not any(isinstance(spec.observation, dict) for spec in own.values())
        observation = common[_REST] if self._is_array else common
        self.specs = dict.fromkeys(self.agents, EnvironmentSpec(observation, action))

    def received(self, steps: dict[str, AgentStep]) -> dict[str, AgentStep]:
        return {agent: step._replace(observation=self._pad(agent, step.observation)) for agent, step in steps.items()}

    def _pad(self, agent: str, observation: Nest) -> Nest:
        parts = _parts(observation)
        padded = {name: _enlarged(parts.get(name), spec) for name, spec in self._observation.items()}
        if self._sizes:
            size = self._sizes[agent]
            mask = padded[MASK] = np.zeros(max(self._sizes.values()), np.int32)
            mask[:size] = parts.get(MASK, 1)
        return padded[_REST] if self._is_array else padded


def _parts(observation: Nest) -> Mapping[str, Nest]:
    return observation if isinstance(observation, dict) else {_REST: observation}


def _common(name: str, found: Sequence[Nest]) -> Nest:
    """Returns a spec that has room for the values of all these specs of a part of observations."""
    first = found[0]
    if all(spec == first for spec in found):
        return first
    if all(isinstance(spec, specs.DiscreteArray) for spec in found):
        return specs.DiscreteArray(max(int(spec.num_values) for spec in found), dtype=np.int32)
    for spec in found:
        is_array = isinstance(spec, specs.Array) and not isinstance(spec, specs.DiscreteArray | MultiDiscreteArray)
        if not is_array or (spec.dtype, len(spec.shape)) != (first.dtype, len(first.shape)):
            raise CallboardError(
                f"the part {name!r} of observations cannot be padded: agents have {describe(first)} and "
                f"{describe(spec)}; {_FIX}"
            )
    shape = tuple(max(sizes) for sizes in zip(*(spec.shape for spec in found), strict=True))
    check_array(shape, "observation", (name,))
    if not all(isinstance(spec, specs.BoundedArray) for spec in found):
        return specs.Array(shape, first.dtype)
    low = min(0, *(np.min(spec.minimum) for spec in found))
    high = max(0, *(np.max(spec.maximum) for spec in found))
    return specs.BoundedArray(shape, first.dtype, low, high)


def _enlarged(value: Nest, spec: Nest) -> Nest:
    """Returns a value with zeros at the end of every axis, or zeros for None."""
    if value is None:
        return zeros(spec)
    if not isinstance(spec, specs.Array) or np.shape(value) == spec.shape:
        return value
    array = np.zeros(spec.shape, spec.dtype)
    array[tuple(slice(size) for size in np.shape(value))] = value
    return array
