"""Checks of agents with a policy and separate critics (SAC, TD3, D4PG, DMPO)."""

import dataclasses
from typing import Any

import numpy as np
from dm_env import specs as dm_specs

from ...errors import CallboardError
from ...networks.factory import check_network
from ...networks.network_settings import ActorCriticSettings, CriticSettings, NetworkSettings
from ...replay import check_stack
from ...specs import EnvironmentSpec


def check_networks(name: str, spec: EnvironmentSpec, network: NetworkSettings, frame_stack: int) -> None:
    """Checks that networks fit an environment's observations, and have no batch normalization.

    Args:
      name: the agent's name, for the messages.
      spec: the environment's spec.
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
    check_network(spec, network)
    check_stack(spec, frame_stack)


def check_critics(name: str, action: Any, critics: CriticSettings, network: ActorCriticSettings) -> None:
    """Checks that the settings of critics fit those of the network, and the environment's action.

    Args:
      name: the agent's name, for the messages.
      action: the spec of the environment's action.
      critics: settings of the critics.
      network: settings of the networks.

    Raises:
      CallboardError: they do not.
    """
    is_box = isinstance(action, dm_specs.BoundedArray) and np.issubdtype(action.dtype, np.floating)
    if critics.quantiles is not None and not is_box:
        raise CallboardError(
            f"{name} learns quantiles for one array of numbers alone: leave agent.critics.quantiles out here"
        )
    of_layers = {
        "dropout": critics.dropout > 0,
        "layer_norm": critics.layer_norm,
        "hidden_sizes": critics.hidden_sizes is not None,
    }
    if network.critic_head is not None and any(of_layers.values()):
        setting = next(field for field, given in of_layers.items() if given)
        raise CallboardError(
            f"agent.network.critic_head makes the layers of the critics: leave agent.critics.{setting} out"
        )
    sizes = network.hidden_sizes if critics.hidden_sizes is None else critics.hidden_sizes
    if not sizes and (critics.dropout or critics.layer_norm):
        setting = "dropout" if critics.dropout else "layer_norm"
        raise CallboardError(
            f"agent.critics.{setting} is of hidden layers, and the critics have none: leave it out, or set "
            "agent.critics.hidden_sizes to such as [256, 256]"
        )
    if network.block == "simba":
        if critics.dropout or critics.layer_norm:
            setting = "dropout" if critics.dropout else "layer_norm"
            raise CallboardError(f"agent.network.block simba has its own layers: leave agent.critics.{setting} out")
        if critics.hidden_sizes is not None and len(set(critics.hidden_sizes)) != 1:
            raise CallboardError(
                "agent.network.block simba needs layers of equal size: set agent.critics.hidden_sizes to such as "
                f"[512, 512], not {list(critics.hidden_sizes)}"
            )


def check_crossq(agent: Any) -> None:
    """Checks that the other settings of an agent with `crossq` have a meaning.

    Raises:
      CallboardError: one has none.
    """
    first = {field.name: field.default for field in dataclasses.fields(agent)}
    network, critics = agent.network, agent.critics
    unused = {
        "agent.target_update_rate": agent.target_update_rate != first["target_update_rate"],
        "agent.target_update_period": agent.target_update_period != first["target_update_period"],
    }
    for setting, given in unused.items():
        if given:
            raise CallboardError(f"agent.crossq has no target critics: leave {setting} out")
    own = {
        "agent.network.layer_norm": network.layer_norm,
        "agent.network.block": network.block != "plain",
        "agent.network.head": network.head is not None,
        "agent.network.critic_head": network.critic_head is not None,
        "agent.critics.layer_norm": critics.layer_norm,
        "agent.critics.dropout": critics.dropout > 0,
    }
    for setting, given in own.items():
        if given:
            raise CallboardError(f"agent.crossq has batch-renormalized layers: leave {setting} out")
