"""Checks of agents with a policy and separate critics (SAC, TD3, D4PG, DMPO)."""

from ...errors import CallboardError
from ...networks.factory import check_network
from ...networks.network_settings import NetworkSettings
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
