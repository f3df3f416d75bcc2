"""The policies of all agents of an environment, as one that acts in a batch of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tree
from dm_env import specs

from ...action_masks import MASK, choice_sizes, has_mask
from ...data import Nest, Timestep
from ...environments.multi_agent.policy_view import PolicyView
from ...specs import EnvironmentSpec, MultiDiscreteArray
from .acting import BatchPolicy


class JointPolicy:
    """Acts for all policies of an environment.

    Args:
      view: how the policies see the environments that are acted in.
      policies: the policies, each for all of its slots.
    """

    def __init__(self, view: PolicyView, policies: Mapping[str, BatchPolicy]):
        self.view = view
        self._policies = policies

    def __call__(self, timestep: Timestep) -> tuple[Nest, tuple[()]]:
        """Returns the actions, and no extras; the timestep must be the newest of the environments."""
        by_policy = self.view.split(timestep)
        return self.view.join({name: policy(by_policy[name])[0] for name, policy in self._policies.items()}), ()


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
        if has_mask(timestep.observation):
            allowed = np.concatenate(tree.flatten(timestep.observation[MASK]), axis=-1) != 0
        else:
            allowed = np.ones((self._count, choice_sizes(self._spec.action).sum()), np.bool_)
        actions, begin = [], 0
        for leaf in tree.flatten(self._spec.action):
            if isinstance(leaf, specs.DiscreteArray | MultiDiscreteArray):
                end = begin + int(np.sum(leaf.num_values))
                actions.append(self._choose(leaf, allowed[:, begin:end]))
                begin = end
            else:
                actions.append(self._sample(leaf))
        return tree.unflatten_as(self._spec.action, actions), ()

    def _choose(self, leaf: Any, allowed: np.ndarray) -> np.ndarray:
        """Returns values of a discrete leaf, given which of all its choices' values are legal, `[slots, values]`."""
        scores = np.where(allowed, self._random.random(allowed.shape), -1.0)
        choices = np.split(scores, np.cumsum(np.ravel(leaf.num_values))[:-1], axis=1)
        values = np.stack([choice.argmax(axis=1) for choice in choices], axis=1)
        return values.reshape(self._count, *leaf.shape).astype(leaf.dtype)

    def _sample(self, leaf: Any) -> np.ndarray:
        """Returns values of a leaf that is not discrete."""
        shape = (self._count, *leaf.shape)
        if np.issubdtype(leaf.dtype, np.integer) or np.issubdtype(leaf.dtype, np.bool_):
            low, high = np.asarray(leaf.minimum, np.int64), np.asarray(leaf.maximum, np.int64)
            return self._random.integers(low, high, shape, endpoint=True).astype(leaf.dtype)
        low = np.asarray(getattr(leaf, "minimum", -np.inf))
        high = np.asarray(getattr(leaf, "maximum", np.inf))
        bounded = np.isfinite(low) & np.isfinite(high)
        numbers = self._random.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), shape)
        numbers = np.where(bounded, numbers, self._random.standard_normal(shape))
        return np.clip(numbers, low, high).astype(leaf.dtype)
