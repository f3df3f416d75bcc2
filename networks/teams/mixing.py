"""Mixing networks: the value of a team's joint action from the values of its members' actions."""

from typing import Any

import tensorflow as tf

from ..heads.heads import MLPHead
from ..network_settings import Mixer
from ..torsos.dense import Layers


class SumMixer(tf.Module):
    """The sum of the members' values (VDN: Sunehag et al. 2018, https://arxiv.org/abs/1706.05296, equation (1))."""

    def __call__(self, values: tf.Tensor, state: Any) -> tf.Tensor:
        """Maps values `[N, M]` to `[N]`, whatever the state."""
        return tf.reduce_sum(values, axis=-1)


class MonotonicMixer(tf.Module):
    """A network that is monotonic in the members' values (QMIX: Rashid et al. 2018, https://arxiv.org/abs/1803.11485).

    Its weights, which are not negative, and its biases are outputs of hypernetworks that take the state (section 4.1,
    figure 2).
    """

    def __init__(
        self, members: int, state_size: int, size: int = 32, hypernetwork_size: int = 0, name: str | None = None
    ) -> None:
        """Builds all variables.

        Args:
          members: M, the number of values.
          state_size: S, the number of features of the state.
          size: E, units of the hidden layer.
          hypernetwork_size: units of the hidden layer of the hypernetworks that give weights; 0 for none, as in the
            paper.
          name: name of the module.
        """
        super().__init__(name)
        self._shape = (members, size)
        hidden = Layers((hypernetwork_size,) if hypernetwork_size else ())
        self._weights = MLPHead(members * size, hidden)
        self._bias = MLPHead(size)
        self._output_weights = MLPHead(size, hidden)
        self._output_bias = MLPHead(1, Layers((size,)))
        dtype = tf.keras.backend.floatx()
        self(tf.zeros((1, members), dtype), tf.zeros((1, state_size), dtype))

    def __call__(self, values: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
        """Maps values `[N, M]` and states `[N, S]` to `[N]`."""
        weights = tf.reshape(tf.abs(self._weights(state)), (-1, *self._shape))
        hidden = tf.einsum("nm,nme->ne", values, weights) + self._bias(state)
        # ELU.  TensorFlow's own makes its graph optimizer log errors.
        hidden = tf.where(hidden > 0, hidden, tf.math.expm1(tf.minimum(hidden, 0)))
        return tf.reduce_sum(hidden * tf.abs(self._output_weights(state)), axis=-1) + self._output_bias(state)[:, 0]


def make_mixer(
    mixer: Mixer, members: int, state_size: int, size: int, hypernetwork_size: int
) -> SumMixer | MonotonicMixer:
    """Makes a mixer by name, for M members and a state of S features; sizes as in `MonotonicMixer`."""
    return SumMixer() if mixer == "vdn" else MonotonicMixer(members, state_size, size, hypernetwork_size)
