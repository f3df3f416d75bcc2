"""Checks of an environment's actions: those that an agent cannot choose are refused."""

from typing import Any

import numpy as np
import tree
from dm_env import specs as dm_specs

from ... import specs
from ...action_masks import choice_sizes
from ...data import Nest
from ...errors import CallboardError
from ...networks.actions.action_bounds import ActionBounds


def check_discrete_or_bounded(name: str, action: Nest) -> None:
    """Checks that an environment's action is a nest of discrete choices and arrays of floats with bounds.

    Args:
      name: the agent's name, for the message.
      action: the spec of the action.

    Raises:
      CallboardError: a part of it is something else, or has no components.
    """
    leaves = tree.flatten(action)
    for leaf in leaves:
        is_box = isinstance(leaf, dm_specs.BoundedArray) and np.issubdtype(leaf.dtype, np.floating)
        if not is_box and not isinstance(leaf, dm_specs.DiscreteArray | specs.MultiDiscreteArray):
            raise CallboardError(
                f"{name} needs actions that are discrete or floats with bounds, but the environment's action is "
                f"{specs.describe(action)}"
            )
    if not leaves or any(0 in leaf.shape for leaf in leaves):
        raise CallboardError(f"{name} has nothing to choose: the environment's action is {specs.describe(action)}")


def check_discrete(name: str, action: Nest) -> None:
    """Checks that an environment's action is one discrete choice, or a nest of them.

    Args:
      name: the agent's name, for the message.
      action: the spec of the action.

    Raises:
      CallboardError: a part of it is something else, or there is nothing to choose.
    """
    leaves = tree.flatten(action)
    if not leaves or not all(isinstance(leaf, dm_specs.DiscreteArray | specs.MultiDiscreteArray) for leaf in leaves):
        raise CallboardError(
            f"{name} compares the values of actions and needs one discrete action, or several, but the environment's "
            f"action is {specs.describe(action)}"
        )
    if not choice_sizes(action).size:
        raise CallboardError(f"{name} has nothing to choose: the action is {specs.describe(action)}")


def check_finite_bounds(name: str, action: Any) -> None:
    """Checks that the bounds of an array of floats are finite, so that policies can scale unit actions to them.

    Args:
      name: the agent's name, for the messages.
      action: a `BoundedArray` of floats.

    Raises:
      CallboardError: they are not.
    """
    if not (np.isfinite(action.minimum).all() and np.isfinite(action.maximum).all()):
        raise CallboardError(
            f"{name} scales its actions to the environment's bounds and needs finite ones, but the environment's "
            f"action, {specs.describe(action)}, has bounds that are infinite: set "
            "agent.action_limit to the largest number to try, or wrap the environment to rescale it"
        )
    ActionBounds(action)
