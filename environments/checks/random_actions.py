"""Random actions, among those that an action mask allows."""

from typing import Any

import numpy as np
import tree
from dm_env import specs

from ...action_masks import MASK, choice_sizes, has_mask
from ...data import Nest
from ...specs import EnvironmentSpec, MultiDiscreteArray


def random_actions(spec: EnvironmentSpec, observation: Nest, rng: np.random.Generator, batch_size: int) -> Nest:
    """Samples an action for each environment of a batch.

    Args:
      spec: the environment's spec.
      observation: arrays `[B, ...]`.
      rng: the generator.
      batch_size: B.

    Returns:
      Arrays `[B, ...]`, uniform between the bounds; from a normal distribution where a float has none.
    """
    sizes = choice_sizes(spec.action)
    scores = rng.random((batch_size, int(sizes.sum())))
    if has_mask(observation):
        scores *= np.concatenate(tree.flatten(observation[MASK]), axis=-1) != 0
    choices = iter([part.argmax(-1) for part in np.split(scores, np.cumsum(sizes)[:-1], axis=-1)] if len(sizes) else ())

    def leaf(part: Any) -> np.ndarray:
        if isinstance(part, specs.DiscreteArray | MultiDiscreteArray):
            chosen = [next(choices) for _ in range(np.size(part.num_values))]
            return np.stack(chosen, -1).reshape(batch_size, *part.shape).astype(part.dtype)
        shape = (batch_size, *part.shape)
        low, high = np.broadcast_to(part.minimum, part.shape), np.broadcast_to(part.maximum, part.shape)
        bounded = np.isfinite(low) & np.isfinite(high)
        inside = rng.uniform(np.where(bounded, low, 0.0), np.where(bounded, high, 1.0), shape)
        values = np.where(bounded, inside, np.clip(rng.standard_normal(shape), low, high))
        return np.clip(values.astype(part.dtype), low, high).astype(part.dtype)

    return tree.map_structure(leaf, spec.action)
