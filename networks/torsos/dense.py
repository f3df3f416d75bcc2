"""Hidden layers of MLPs."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from .batch_renormalization import BatchRenormalization
from .parallel_layers import ParallelDense, ParallelDropout, ParallelLayerNorm

Normalization = bool | Literal["batch_renorm", "simba"]
"""How hidden layers are normalized: not; True for layer normalization; or see `Layers`."""

_EPSILON = 1e-5
_EXPANSION = 4
"""Units of the hidden layer of a residual block, for each of its outputs."""


class Layers(NamedTuple):
    """The hidden layers of a torso or of each MLP of a head."""

    sizes: Sequence[int] = ()
    """Units of each layer; empty for none, so that a head is linear."""
    activation: Any = "relu"
    """Activation of each layer."""
    normalization: Normalization = False
    """True if the inputs of the activations are normalized to zero mean and unit variance over the units.

    That is with a trained scale and offset (Ba et al. 2016, https://arxiv.org/abs/1607.06450).  `batch_renorm` if
    `BatchRenormalization` normalizes the inputs and the outputs of all layers (CrossQ, Bhatt et al. 2024,
    https://arxiv.org/abs/1902.05605).  `simba` for a linear layer, as many residual blocks as there are sizes, which
    are equal, and a layer normalization (Lee et al. 2024, https://arxiv.org/abs/2410.09754, section 4).
    """
    make_noisy: Callable[..., tf.keras.layers.Layer] | None = None
    """A `stochastic_layers.NoisyLayers`, whose layers take the place of dense ones; None for dense ones.

    It makes the linear layer of a head, too.
    """


LINEAR = Layers()
"""No hidden layers."""


def hidden_layers(
    of: Layers, kernel_initializer: Any = None, number: int | None = None, dropout: float = 0.0
) -> list[tf.keras.layers.Layer]:
    """Returns dense layers, to be called one after the other.

    Args:
      of: their sizes and kinds.
      kernel_initializer: name of an initializer; None for orthogonal with gain sqrt(2).
      number: networks whose layers are computed together, from inputs `[number, N, F]`; None for one, from `[N, F]`.
      dropout: share of units that `ParallelDropout` sets to zero before the activations, for several networks alone.
    """
    sizes, activation, normalization, make_noisy = of
    make = _Makers(number)
    if normalization == "simba":
        return _residual_layers(sizes, activation, make) if sizes else []
    layers: list[tf.keras.layers.Layer] = []
    if normalization == "batch_renorm":
        layers.append(BatchRenormalization(name="norm"))
    for i, size in enumerate(sizes):
        # One initializer per layer: a reused initializer returns the same weights again.
        kernel = kernel_initializer or tf.keras.initializers.Orthogonal(math.sqrt(2))
        outer = None if normalization is True or dropout else activation
        if make_noisy is not None:
            layers.append(make_noisy(size, outer, name=f"dense_{i}"))
        elif number is not None:
            layers.append(ParallelDense(number, size, outer, name=f"dense_{i}"))
        else:
            layers.append(tf.keras.layers.Dense(size, outer, kernel_initializer=kernel, name=f"dense_{i}"))
        if dropout:
            layers.append(ParallelDropout(dropout, i, name=f"dropout_{i}"))
        if normalization is True:
            layers.append(make.norm(name=f"norm_{i}"))
        if outer is None:
            layers.append(tf.keras.layers.Activation(activation, name=f"activation_{i}"))
        if normalization == "batch_renorm":
            layers.append(BatchRenormalization(name=f"norm_{i}"))
    return layers


class ResidualBlock(tf.keras.layers.Layer):
    """Adds to its inputs what an MLP of one hidden layer makes of their normalization."""

    def __init__(self, size: int, activation: Any, make: Any, name: str | None = None) -> None:
        """Creates a block for inputs of `size` units, of layers that `make` makes."""
        super().__init__(name=name)
        self._layers = [
            make.norm(name="norm"),
            make.dense(_EXPANSION * size, activation, kernel_initializer="he_normal", name="hidden"),
            make.dense(size, kernel_initializer="he_normal", name="output"),
        ]

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps `[..., size]` to the same."""
        change = x
        for layer in self._layers:
            change = layer(change)
        return x + change


class _Makers:
    """Makes layers of one network, or of several."""

    def __init__(self, number: int | None):
        self.dense: Callable[..., tf.keras.layers.Layer] = tf.keras.layers.Dense
        self.norm: Callable[..., tf.keras.layers.Layer] = functools.partial(
            tf.keras.layers.LayerNormalization, epsilon=_EPSILON
        )
        if number is not None:
            self.dense = functools.partial(ParallelDense, number)
            self.norm = functools.partial(ParallelLayerNorm, number)


def _residual_layers(sizes: Sequence[int], activation: Any, make: _Makers) -> list[tf.keras.layers.Layer]:
    blocks = [ResidualBlock(size, activation, make, name=f"block_{i}") for i, size in enumerate(sizes)]
    return [make.dense(sizes[0], kernel_initializer="orthogonal", name="dense"), *blocks, make.norm(name="norm")]
