"""Separate networks for policy and value."""

from typing import Any

import tensorflow as tf
import tree

from ..data import Nest
from .network import Inputs, Network


class SeparateNetworks(Network):
    """A network for the policy and one for the value, with the interface of a `Network` that outputs both.

    Args:
      policy: its outputs have a field `value`, which is `()`.
      value: outputs values `[...]`, which take the place of that field.  Both have the same normalizer.
      name: name of the module.
    """

    def __init__(self, policy: Network, value: Network, name: str | None = None):
        # The parts of a `Network` are those of the two.
        tf.Module.__init__(self, name)
        self.policy = policy
        self.value = value
        self.normalizer = policy.normalizer

    @property
    def state_spec(self) -> Nest:
        """As in `Network`: the states of both."""
        return _pair(self.policy.state_spec, self.value.state_spec)

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
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, those of the policy first."""
        return (*self.policy.trainable_variables, *self.value.trainable_variables)

    @property
    def value_variables(self) -> tuple[tf.Variable, ...]:
        """Variables of the value's network."""
        return self.value.trainable_variables

    def regularization_loss(self) -> Any:
        """As in `Network`: the sum of both."""
        return self.policy.regularization_loss() + self.value.regularization_loss()

    def _joined(self, method: str, inputs: Inputs, state: Nest, first: Any, training: bool) -> tuple[Any, Nest]:
        of_policy, of_value = state if len(state) else ((), ())
        outputs, of_policy = getattr(self.policy, method)(inputs, of_policy, first, training)
        value, of_value = getattr(self.value, method)(inputs, of_value, first, training)
        return outputs._replace(value=value), _pair(of_policy, of_value)


def _pair(of_policy: Nest, of_value: Nest) -> Nest:
    return (of_policy, of_value) if tree.flatten((of_policy, of_value)) else ()
