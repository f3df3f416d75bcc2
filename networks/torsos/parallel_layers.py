"""Layers of several networks of the same shape: one matrix product for all of them."""

import math
from typing import Any

import tensorflow as tf

from .. import stateless_random
from ..random_streams import Stream, stream_seed
from ..stochastic_layers import randomness

_EPSILON = 1e-5


class ParallelDense(tf.keras.layers.Layer):
    """A dense layer of each of K networks, which share nothing."""

    def __init__(
        self,
        number: int,
        units: int,
        activation: Any = None,
        gain: float = math.sqrt(2),
        kernel_initializer: Any = None,
        name: str | None = None,
    ) -> None:
        """Creates layers of `units` units for `number` networks, orthogonal with a gain or otherwise initialized."""
        super().__init__(name=name)
        self._number = number
        self._units = units
        self._activation = tf.keras.activations.get(activation)
        self._gain = gain
        self._initializer = kernel_initializer

    def build(self, input_shape: Any) -> None:
        def kernels(shape: Any, dtype: Any = None) -> tf.Tensor:
            # One initializer per network: a reused initializer returns the same weights again.
            each = [
                tf.keras.initializers.get(self._initializer)
                if self._initializer
                else tf.keras.initializers.Orthogonal(self._gain)
                for _ in range(self._number)
            ]
            return tf.stack([initializer(shape[1:], dtype=dtype) for initializer in each])

        shape = (self._number, int(input_shape[-1]), self._units)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=kernels)
        self.bias = self.add_weight(name="bias", shape=(self._number, 1, self._units), initializer="zeros")
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps `[K, N, inputs]` to `[K, N, units]`."""
        return self._activation(tf.linalg.matmul(x, self.kernel) + self.bias)


class ParallelLayerNorm(tf.keras.layers.Layer):
    """Layer normalization in each of K networks (Ba et al. 2016), with a trained scale and offset."""

    def __init__(self, number: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self._number = number

    def build(self, input_shape: Any) -> None:
        shape = (self._number, 1, int(input_shape[-1]))
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Normalizes `[K, N, units]` over the units."""
        mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, _EPSILON)


class ParallelDropout(tf.keras.layers.Layer):
    """Sets a share of the units of K networks to zero, in the context `stochastic_layers.sampling` alone."""

    def __init__(self, rate: float, layer: int, name: str | None = None) -> None:
        """Takes the share, and the number of the layer in its network, so that layers are independent."""
        super().__init__(name=name)
        self._rate = rate
        self._layer = layer

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps `[K, N, units]`, where N is the size of the context's batch, to the same, with zeros."""
        context = randomness()
        if context is None:
            return x
        seed, shape = stream_seed(context.seed, Stream.DROPOUT, self._layer), (x.shape[0], x.shape[2])
        uniform = stateless_random.uniform(seed, Stream.DROPOUT, context.index, shape, x.dtype)
        kept = tf.cast(tf.transpose(uniform, (1, 0, 2)) >= self._rate, x.dtype)
        return x * kept / (1.0 - self._rate)
