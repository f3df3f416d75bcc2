"""Environments with masked observations, for which an agent needs memory."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from ..errors import CallboardError
from ..settings.named_objects import nameable
from .gymnasium_registry import make_single


@nameable
def masked(id: str = "CartPole-v1", keep: Sequence[int] = (0, 2), **kwargs: Any) -> gymnasium.Env:
    """Makes a Gymnasium environment that shows only some entries of its observation vector.

    By default this is CartPole without velocities, with only the positions of cart and pole.

    Args:
      id: a Gymnasium id with observations `[N]`.
      keep: indices of the entries to keep, in the order of the new observation `[len(keep)]`.
      **kwargs: options of the environment.

    Raises:
      CallboardError: if the observation is not a vector, or an index is out of range.
    """
    environment = make_single(id, kwargs)
    space = environment.observation_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        environment.close()
        raise CallboardError(f"the observation of {id!r} is not a vector: there is nothing to hide by index")
    indices = np.asarray(keep, np.int64).reshape(-1)
    if not indices.size or indices.min() < 0 or indices.max() >= space.shape[0]:
        environment.close()
        raise CallboardError(f"keep={list(keep)} does not fit {id!r}: choose from 0 to {space.shape[0] - 1}")
    shown = gymnasium.spaces.Box(space.low[indices], space.high[indices], dtype=space.dtype.type)

    def kept(observation: Any) -> np.ndarray:
        array = np.asarray(observation)
        if array.shape != space.shape:
            raise CallboardError(
                f"the environment gives an observation of shape {array.shape} where its space says {space.shape}"
            )
        return array[indices]

    return gymnasium.wrappers.TransformObservation(environment, kept, shown)
