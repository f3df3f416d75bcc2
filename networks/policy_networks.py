"""Networks for policy and value, by the kind of the environment's action."""

from dm_env import specs as dm_specs

from ..specs import EnvironmentSpec
from .factory import gaussian_value_network, policy_value_network
from .network import Network
from .network_settings import PolicyValueNetworkSettings


def policy_network(
    spec: EnvironmentSpec,
    settings: PolicyValueNetworkSettings,
    initial_log_std: float = 0.0,
    std_from_features: bool = False,
) -> Network:
    """Builds a network for policy and value, whose outputs `action_policy.action_policy` turns into actions.

    Args:
      spec: the environment's spec.
      settings: settings of the network.
      initial_log_std: initial logarithm of the standard deviation of a Gaussian policy's numbers.
      std_from_features: whether that standard deviation depends on the observation.

    Raises:
      CallboardError: if a name is unknown, or a part of the action is neither discrete nor of floats.
    """
    values = dict(vars(settings))
    if isinstance(spec.action, dm_specs.DiscreteArray):
        # One choice has nothing to be chosen before it.
        del values["autoregressive"]
        return policy_value_network(spec, **values)
    return gaussian_value_network(spec, **values, initial_log_std=initial_log_std, std_from_features=std_from_features)
