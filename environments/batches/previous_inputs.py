"""Observations that also contain the previous action and its reward, for agents without a memory of them."""

from typing import Any

import numpy as np
import tree
from dm_env import specs as dm_specs

from ...data import Nest, Timestep
from ...specs import EnvironmentSpec, MultiDiscreteArray
from .batched import BatchedEnvironment, EnvironmentWrapper
from .encoding import encoding_of, with_part_values, with_parts

OPTION = "env_previous_inputs"
"""Option of every environment that Callboard takes itself."""
ACTION, REWARD = "previous_action", "previous_reward"


class PreviousInputs(EnvironmentWrapper):
    """Adds the parts `previous_action` and `previous_reward` to the observations of a batch.

    Numbers of an action are as they are, and its choices are numbered from 1; both are 0 where an episode begins.  The
    reward, a scalar, is not clipped or scaled.

    Args:
      environment: the batch.

    Raises:
      CallboardError: its observations have a part of this name already.
    """

    def __init__(self, environment: BatchedEnvironment):
        super().__init__(environment)
        spec = environment.spec
        before = EnvironmentSpec(tree.map_structure(_with_none, spec.action), spec.action)
        reward = EnvironmentSpec(dm_specs.Array((), np.float32), spec.action)
        parts = {ACTION: encoding_of(before).observation, REWARD: encoding_of(reward).observation}
        self._spec = with_parts(spec, parts, "the environment")

    @property
    def spec(self) -> EnvironmentSpec:
        return self._spec

    def reset(self) -> Timestep:
        timestep = super().reset()
        nothing = tree.map_structure(
            lambda leaf: np.zeros((self.batch_size, *leaf.shape), leaf.dtype), self._spec.observation[ACTION]
        )
        return self._with_previous(timestep, nothing)

    def step(self, actions: Nest) -> Timestep:
        timestep = super().step(actions)

        def shown(spec: Any, action: Any) -> np.ndarray:
            number = np.asarray(action, spec.dtype) + _is_choice(spec)
            return np.where(timestep.first.reshape(-1, *[1] * len(spec.shape)), 0, number).astype(spec.dtype)

        return self._with_previous(timestep, tree.map_structure(shown, self._spec.action, actions))

    def _with_previous(self, timestep: Timestep, action: Nest) -> Timestep:
        # Where the library resets in the same step, the reward is that of the episode before.
        reward = np.where(timestep.first, np.float32(0), timestep.reward)
        return timestep._replace(observation=with_part_values(timestep.observation, {ACTION: action, REWARD: reward}))


def _is_choice(spec: dm_specs.Array) -> bool:
    return isinstance(spec, dm_specs.DiscreteArray | MultiDiscreteArray)


def _with_none(spec: Any) -> dm_specs.Array:
    """Returns the spec of a previous action, which may be that there is none."""
    if isinstance(spec, dm_specs.DiscreteArray):
        return dm_specs.DiscreteArray(spec.num_values + 1, dtype=spec.dtype)
    if isinstance(spec, MultiDiscreteArray):
        return MultiDiscreteArray(spec.num_values + 1, spec.dtype)
    # The beginning of an episode may be outside of the action's bounds.
    return dm_specs.Array(spec.shape, spec.dtype)
