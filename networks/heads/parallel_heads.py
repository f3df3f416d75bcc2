"""The MLPs of several critics on the same features."""

import tensorflow as tf

from ..torsos.dense import LINEAR, Layers, hidden_layers
from ..torsos.parallel_layers import ParallelDense


class ParallelHeads(tf.Module):
    """MLPs of the same shape that share nothing, computed together.

    Args:
      number: K, the number of MLPs.
      outputs: units of the last layer of each.
      layers: hidden layers of each.
      dropout: see `dense.hidden_layers`.
      name: name of the module.
    """

    def __init__(
        self, number: int, outputs: int, layers: Layers = LINEAR, dropout: float = 0.0, name: str | None = None
    ):
        super().__init__(name)
        self._number = number
        self._layers = hidden_layers(layers, number=number, dropout=dropout)
        self._layers.append(ParallelDense(number, outputs, gain=1.0, name="output"))

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Maps features `[N, F]` to `[K, N, outputs]`."""
        features = tf.tile(features[tf.newaxis], (self._number, 1, 1))
        for layer in self._layers:
            features = layer(features)
        return features
