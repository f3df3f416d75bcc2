"""Hidden layers of MLPs."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_EPSILON = 1e-5


def hidden_layers(
    sizes: Sequence[int],
    activation: Any,
    layer_norm: bool = False,
    kernel_initializer: Any = None,
    make_noisy: Callable[..., tf.keras.layers.Layer] | None = None,
) -> list[tf.keras.layers.Layer]:
    """Returns dense layers, to be called one after the other.

    Args:
      sizes: units of each layer.
      activation: activation of each layer.
      layer_norm: whether the inputs of the activations are normalized to zero mean and unit variance over the units
        (Ba et al. 2016, https://arxiv.org/abs/1607.06450), with a trained scale and offset.
      kernel_initializer: name of an initializer; None for orthogonal with gain sqrt(2).
      make_noisy: a `stochastic_layers.NoisyLayers`, whose layers take the place of dense ones; None for dense ones.
    """
    layers: list[tf.keras.layers.Layer] = []
    for i, size in enumerate(sizes):
        # One initializer per layer: a reused initializer returns the same weights again.
        kernel = kernel_initializer or tf.keras.initializers.Orthogonal(math.sqrt(2))
        outer = None if layer_norm else activation
        if make_noisy is not None:
            layers.append(make_noisy(size, outer, name=f"dense_{i}"))
        else:
            layers.append(tf.keras.layers.Dense(size, outer, kernel_initializer=kernel, name=f"dense_{i}"))
        if layer_norm:
            layers.append(tf.keras.layers.LayerNormalization(epsilon=_EPSILON, name=f"norm_{i}"))
            layers.append(tf.keras.layers.Activation(activation, name=f"activation_{i}"))
    return layers
