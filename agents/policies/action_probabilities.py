"""Probabilities that a policy gives to actions which it has not chosen itself."""

from typing import Any

import tensorflow as tf
import tree

from ...data import Nest, Timestep
from ...errors import CallboardError
from ...networks.action_policy import DiscretePolicy


def check_probabilities(policy: Any, name: str) -> None:
    """Refuses a policy whose probabilities cannot be computed.

    Args:
      policy: an `agent.Policy`.
      name: what the user calls it.

    Raises:
      CallboardError: it is not over one discrete action, has a memory, or learns action values instead.
    """
    if not isinstance(getattr(policy, "actions", None), DiscretePolicy) or not hasattr(policy, "acting"):
        raise CallboardError(
            "importance sampling needs probabilities of one discrete action, as those of ppo, impala, a2c, bc, awr and "
            f"iql, and the policy of {name} has none: use fitted Q evaluation"
        )
    if tree.flatten(policy.acting.initial_state(1)):
        raise CallboardError(f"the policy of {name} has a memory, which importance sampling does not follow")


def action_log_prob(policy: Any, timestep: Timestep, action: Nest) -> tf.Tensor:
    """Returns the log-probabilities `[B]` of actions `[B]`; `check_probabilities` has accepted the policy."""
    outputs, _ = policy.acting.step(timestep, policy.acting.initial_state(1))
    return policy.actions.evaluate(outputs, timestep.observation, action).log_prob
