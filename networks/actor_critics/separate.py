"""Separate networks for policy and value."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tree

from ...action_masks import MASK
from ...data import Nest
from ...errors import CallboardError
from ..network import Inputs, Network, keep_spec


class SeparateNetworks(Network):
    """A network for the policy and one for the value, with the interface of a `Network` that outputs both.

    Args:
      policy: its outputs have a field `value`, which is `()`.
      value: outputs values `[...]`, which take the place of that field.  Its normalizer is that of the whole
        observation, of which the policy may see less.
      name: name of the module.
    """

    def __init__(self, policy: Network, value: Network, name: str | None = None):
        # The parts of a `Network` are those of the two.
        tf.Module.__init__(self, name)
        self.policy = policy
        self.value = value
        keep_spec(self, policy.spec)
        self.previous_inputs = policy.previous_inputs
        self.normalizer = value.normalizer

    @property
    def state_spec(self) -> Nest:
        """As in `Network`: the states of both."""
        return _pair(self.policy.state_spec, self.value.state_spec)

    @property
    def acting(self) -> Network:
        """As in `Network`: the policy."""
        return self.policy

    def initial_state(self, batch_size: Any) -> Nest:
        """As in `Network`."""
        return _pair(self.policy.initial_state(batch_size), self.value.initial_state(batch_size))

    @tf.autograph.experimental.do_not_convert
    def step(self, inputs: Inputs, state: Nest, first: tf.Tensor, training: bool = False) -> tuple[Any, Nest]:
        """As in `Network`."""
        return self._joined("step", inputs, state, first, training)

    @tf.autograph.experimental.do_not_convert
    def unroll(self, inputs: Inputs, state: Nest, first: tf.Tensor, training: bool = False) -> tuple[Any, Nest]:
        """As in `Network`."""
        return self._joined("unroll", inputs, state, first, training)

    @property
    def head(self) -> Any:
        """As in `Network`: that of the policy."""
        return self.policy.head

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, those of the policy first."""
        return (*self.policy.trainable_variables, *self.value.trainable_variables)

    @property
    def value_variables(self) -> tuple[tf.Variable, ...]:
        """Variables of the value's network."""
        return self.value.trainable_variables

    @property
    def popart(self) -> Any:
        """As in `Network`: that of the value."""
        return self.value.popart

    def regularization_loss(self) -> Any:
        """As in `Network`: the sum of both."""
        return self.policy.regularization_loss() + self.value.regularization_loss()

    def _joined(self, method: str, inputs: Inputs, state: Nest, first: Any, training: bool) -> tuple[Any, Nest]:
        of_policy, of_value = state if len(state) else ((), ())
        outputs, of_policy = getattr(self.policy, method)(inputs, of_policy, first, training)
        value, of_value = getattr(self.value, method)(inputs, of_value, first, training)
        return outputs._replace(value=value), _pair(of_policy, of_value)


def check_critic_state(observation: Nest, state: str | None) -> None:
    """Checks that an observation has a part for the critic alone, and another that the policy sees.

    Args:
      observation: nest of dm_env specs.
      state: key of the critic's part; None for none.

    Raises:
      CallboardError: it does not.
    """
    if state is None:
        return
    parts = observation if isinstance(observation, Mapping) else {}
    if state not in parts or state == MASK or not set(parts) - {state, MASK}:
        known = f"has the parts {', '.join(map(repr, parts))}" if parts else "is not a dictionary"
        raise CallboardError(
            f"agent.network.critic_state is {state!r}, and the observation {known}: name one of several "
            "parts, or leave it out"
        )


def _pair(of_policy: Nest, of_value: Nest) -> Nest:
    return (of_policy, of_value) if tree.flatten((of_policy, of_value)) else ()
