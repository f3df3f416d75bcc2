"""The policies of all agents of an environment, as one that acts in a `JointBatch`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tree
from dm_env import specs

from ..data import Nest, Timestep
from ..environments.joint_batch import JointBatch
from ..specs import EnvironmentSpec
from .acting import BatchPolicy


class JointPolicy:
    """Acts for all policies of an environment.

    Args:
      environment: the environments that are acted in.
      policies: the policies, each for all of its slots.
    """

    def __init__(self, environment: JointBatch, policies: Mapping[str, BatchPolicy]):
        self._environment = environment
        self._policies = policies

    def __call__(self, timestep: Timestep) -> tuple[dict[str, Nest], tuple[()]]:
        """Returns the actions by policy, and no extras; the timestep must be the newest of the environments."""
        del timestep  # The environments have it by policy.
        by_policy = self._environment.by_policy
        return {name: policy(by_policy[name])[0] for name, policy in self._policies.items()}, ()


class UniformPolicy:
    """Takes every legal action with the same probability.

    Numbers without bounds are normally distributed.  What a leaf `action_mask` of the observation forbids is not taken.

    Args:
      spec: spec of an agent.
      count: number of slots.
      seed: seed of the actions.
    """

    def __init__(self, spec: EnvironmentSpec, count: int, seed: int):
        self._spec = spec
        self._count = count
        self._random = np.random.default_rng(seed)

    def __call__(self, timestep: Timestep) -> tuple[Nest, Nest]:
        mask = timestep.observation.get("action_mask") if isinstance(timestep.observation, dict) else None
        return tree.map_structure(lambda leaf: self._sample(leaf, mask), self._spec.action), ()

    def _sample(self, leaf: Any, mask: Any) -> np.ndarray:
        shape = (self._count, *leaf.shape)
        if isinstance(leaf, specs.DiscreteArray):
            scores = self._random.random((self._count, leaf.num_values))
            if mask is not None and np.shape(mask) == scores.shape:
                scores = np.where(mask, scores, -1.0)
            return scores.argmax(axis=-1).astype(leaf.dtype)
        if np.issubdtype(leaf.dtype, np.integer) or np.issubdtype(leaf.dtype, np.bool_):
            return self._random.integers(leaf.minimum, leaf.maximum + 1, shape).astype(leaf.dtype)
        low = np.asarray(getattr(leaf, "minimum", -np.inf))
        high = np.asarray(getattr(leaf, "maximum", np.inf))
        bounded = np.isfinite(low) & np.isfinite(high)
        numbers = self._random.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), shape)
        return np.where(bounded, numbers, self._random.standard_normal(shape)).astype(leaf.dtype)
