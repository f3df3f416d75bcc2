"""Heads: from features to what an agent needs of its network."""

from typing import Any, NamedTuple

import tensorflow as tf


class PolicyValue(NamedTuple):
    """Outputs of a policy with a value function, over leading axes `[...]`."""

    logits: Any
    """`[..., A]`, unnormalised log-probabilities of the actions."""
    value: Any
    """`[...]`."""


class PolicyValueHead(tf.Module):
    """A linear policy over discrete actions and a linear value function on shared features.

    The policy begins close to uniform, so that early actions explore and the first updates are gentle.
    """

    def __init__(self, num_actions: int, name: str | None = None) -> None:
        """A head for `num_actions` actions."""
        super().__init__(name)
        self._logits = tf.keras.layers.Dense(
            num_actions, kernel_initializer=tf.keras.initializers.Orthogonal(0.01), name="policy"
        )
        self._value = tf.keras.layers.Dense(1, kernel_initializer=tf.keras.initializers.Orthogonal(1.0), name="value")

    def __call__(self, features: tf.Tensor) -> PolicyValue:
        """Features `[N, F]` -> logits `[N, A]` and value `[N]`."""
        return PolicyValue(logits=self._logits(features), value=tf.squeeze(self._value(features), axis=-1))
