"""Layers that sample: dense layers with noisy weights, and the context that gives them random numbers.

Fortunato et al. 2018, "Noisy networks for exploration", https://arxiv.org/abs/1706.10295.
"""

import contextlib
import contextvars
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from . import stateless_random
from .random_streams import Stream, stream_seed


class Randomness(NamedTuple):
    """The source of the samples of layers."""

    seed: Any
    """int64 `[2]`, or `[K, 2]` for K equal parts of the batch; see `stateless_random.uniform`."""
    index: Any
    """integers `[B]`, index of each element of the batch."""
    same_noise: bool
    """Whether all elements of the batch have the same noisy weights."""


_current: contextvars.ContextVar[Randomness | None] = contextvars.ContextVar("randomness", default=None)


@contextlib.contextmanager
def sampling(seed: Any, index: Any, same_noise: bool = False) -> Iterator[None]:
    """Within this context layers sample; outside of any, they use the means of what they would sample.

    Args:
      seed: int32 or int64 `[2]` or `[K, 2]`, different for all samples that are to be independent; None for none.
      index: integers `[B]`, index of each element of the batch, which has samples of its own.
      same_noise: whether all elements nevertheless have the same noisy weights, as in the paper's minibatches.
    """
    sampled = None if seed is None else Randomness(tf.cast(seed, tf.int64), tf.convert_to_tensor(index), same_noise)
    token = _current.set(sampled)
    try:
        yield
    finally:
        _current.reset(token)


def randomness() -> Randomness | None:
    """Returns that of the context; None outside of any."""
    return _current.get()


class NoisyDense(tf.keras.layers.Layer):
    """A dense layer with the weights w + sigma_w e_w and b + sigma_b e_b, and factorized noise e (section 3, (b)).

    e_w is the outer product of f(e_in) and f(e_out) with f(e) = sign(e) sqrt(|e|), and e_b is f(e_out).  Elements of a
    batch can so have noise of their own for the price of a second matrix product.
    """

    def __init__(
        self, units: int, activation: Any = None, sigma: float = 0.5, number: int = 0, name: str | None = None
    ) -> None:
        """Creates a layer.

        Args:
          units: number of outputs.
          activation: activation of the outputs.
          sigma: initial standard deviation of the noise, times the root of the number of inputs (sigma_0).
          number: number of the layer in its network, so that layers have independent noise.
          name: name of the layer.
        """
        super().__init__(name=name)
        self._units = units
        self._activation = tf.keras.activations.get(activation)
        self._sigma = sigma
        self._number = number

    def build(self, input_shape: Any) -> None:
        inputs = int(input_shape[-1])
        bound = 1 / math.sqrt(inputs)

        def weight(name: str, shape: tuple[int, ...], initializer: Any) -> tf.Variable:
            return self.add_weight(name=name, shape=shape, initializer=initializer)

        kernel, bias = (inputs, self._units), (self._units,)
        self._kernel = weight("kernel", kernel, tf.keras.initializers.RandomUniform(-bound, bound))
        self._bias = weight("bias", bias, tf.keras.initializers.RandomUniform(-bound, bound))
        self._kernel_sigma = weight("kernel_sigma", kernel, tf.keras.initializers.Constant(self._sigma * bound))
        self._bias_sigma = weight("bias_sigma", bias, tf.keras.initializers.Constant(self._sigma * bound))
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps `[N, inputs]` to `[N, units]`; N is a multiple of the batch size of the context."""
        y = tf.linalg.matmul(x, self._kernel) + self._bias
        context = randomness()
        if context is not None:
            e_in, e_out = self._noise(context, x)
            y += e_out * (tf.linalg.matmul(x * e_in, self._kernel_sigma) + self._bias_sigma)
        return self._activation(y)

    def _noise(self, context: Randomness, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns f(e_in) `[N, inputs]` and f(e_out) `[N, units]`, or `[1, ...]` if it is the same for all."""
        inputs = x.shape[-1]
        seed = stream_seed(context.seed, Stream.NOISY_LAYER, self._number)
        index = tf.zeros((1,), tf.int32) if context.same_noise else context.index
        normal = stateless_random.standard_normal(seed, Stream.NOISY_LAYER, index, (inputs + self._units,), x.dtype)
        scaled = tf.sign(normal) * tf.sqrt(tf.abs(normal))
        if not context.same_noise:
            # Where an element has several rows, as in `implicit_quantiles`, they have its noise.
            scaled = tf.repeat(scaled, tf.shape(x)[0] // tf.shape(index)[0], axis=0)
        return scaled[:, :inputs], scaled[:, inputs:]


class NoisyLayers:
    """Makes the noisy layers of one network.

    Args:
      sigma: see `NoisyDense`.
    """

    def __init__(self, sigma: float):
        self._sigma = sigma
        self._made = 0

    def __call__(self, units: int, activation: Any = None, name: str | None = None) -> NoisyDense:
        """Returns a layer with noise of its own."""
        self._made += 1
        return NoisyDense(units, activation, self._sigma, self._made - 1, name)
