"""The MLPs of several critics on the same features."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..torsos.dense import Normalization, hidden_layers
from ..torsos.parallel_layers import ParallelDense


class ParallelHeads(tf.Module):
    """MLPs of the same shape that share nothing, computed together.

    Args:
      number: K, the number of MLPs.
      outputs: units of the last layer of each.
      hidden_sizes: sizes of the hidden layers.
      activation: activation of the hidden layers.
      layer_norm: how the hidden layers are normalized, as in `dense.hidden_layers`.
      dropout: see `dense.hidden_layers`.
      name: name of the module.
    """

    def __init__(
        self,
        number: int,
        outputs: int,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "relu",
        layer_norm: Normalization = False,
        dropout: float = 0.0,
        name: str | None = None,
    ):
        super().__init__(name)
        self._number = number
        self._layers = hidden_layers(hidden_sizes, activation, layer_norm, number=number, dropout=dropout)
        self._layers.append(ParallelDense(number, outputs, gain=1.0, name="output"))

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Maps features `[N, F]` to `[K, N, outputs]`."""
        features = tf.tile(features[tf.newaxis], (self._number, 1, 1))
        for layer in self._layers:
            features = layer(features)
        return features
