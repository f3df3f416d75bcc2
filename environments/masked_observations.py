"""Environments that hide a part of what there is to see, so that an agent needs a memory."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from ..data import CallboardError
from .gymnasium_registry import make_single


def masked(id: str = "CartPole-v1", keep: Sequence[int] = (0, 2), **kwargs: Any) -> gymnasium.Env:
    """A Gymnasium environment that shows only some entries of its observation vector.

    By default CartPole without its velocities: the positions of cart and pole are left.

    Args:
        id: a Gymnasium id with observations `[N]`.
        keep: the indices that are shown, in this order; they become an observation `[len(keep)]`.
        **kwargs: options of the environment.

    Raises:
        CallboardError: the observation is not a vector, or has no such entry.
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
    return gymnasium.wrappers.TransformObservation(environment, lambda observation: observation[indices], shown)
