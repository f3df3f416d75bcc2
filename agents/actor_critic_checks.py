"""What agents with a policy and separate critics refuse (SAC, TD3, D4PG, DMPO)."""

from typing import Any

import numpy as np

from .. import specs
from ..data import Layout
from ..errors import CallboardError
from ..networks.action_bounds import ActionBounds
from ..networks.factory import check_network
from ..networks.network_settings import NetworkSettings
from ..replay import check_stack


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
            f"action, {specs.describe(action)}, has bounds that are infinite: wrap the environment to rescale it"
        )
    ActionBounds(action)


def check_networks(name: str, layout: Layout, network: NetworkSettings, frame_stack: int) -> None:
    """Checks that networks fit an environment's observations, and have no batch normalization.

    Args:
      name: the agent's name, for the messages.
      layout: the run's layout.
      network: the settings of the networks.
      frame_stack: number of frames in a stack.

    Raises:
      CallboardError: they do not, or have it.
    """
    torso = network.batch_normalized_torso
    if torso:
        raise CallboardError(
            f"{name} does not train the statistics of batch normalization: set agent.network.torso to impala or "
            f"nature, not {torso}"
        )
    check_network(layout.spec, network)
    check_stack(layout.spec, frame_stack)
