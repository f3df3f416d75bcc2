"""Torsos that compute in bfloat16, with Keras's mixed precision."""

import functools
from collections.abc import Callable
from typing import Literal

import tensorflow as tf

from ..data import Nest
from ..runtime.tracing_lock import TRACING

_Layer = tf.keras.layers.Layer

_ACTIVATIONS = ("activation", "_activation")
"""Attributes of layers, those of Keras and of this library, that are activations."""

Precision = Literal["float32", "bfloat16", "bfloat16_on_gpu"]
"""The precision in which torsos compute; `bfloat16_on_gpu` is float32 in a process that has no GPU.

`bfloat16` is float32 where TensorFlow has oneDNN on and the processor does not compute in bfloat16: without AVX-512.
"""


def with_precision(torso: tf.keras.layers.Layer, precision: Precision) -> tf.keras.layers.Layer:
    """Returns a torso that has no variables yet as one of this precision; one without layers stays as it is."""
    on_gpu = precision == "bfloat16_on_gpu" and bool(tf.config.list_logical_devices("GPU"))
    if not (precision == "bfloat16" or on_gpu) or not any(isinstance(part, _Layer) for part in torso.submodules):
        return torso
    if not _compiles_bfloat16():
        return torso
    return MixedPrecisionTorso(torso)


@functools.cache
def _compiles_bfloat16() -> bool:
    """Returns whether compiled layers run in bfloat16 in this process.

    With oneDNN on, TensorFlow's graph optimizer fuses the operations of a layer, and on CPUs without AVX-512 there is
    no fused kernel for bfloat16: convolutions fail, and matrix products of some sizes end the process.
    """

    def layer(image: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(image, image, 1, "VALID"), bias))

    with tf.init_scope(), TRACING:
        image, bias = tf.ones((1, 1, 1, 1), tf.bfloat16), tf.ones((1,), tf.bfloat16)
        compiled = tf.function(layer, autograph=False).get_concrete_function(image, bias)
        try:
            compiled(image, bias)
        except tf.errors.OpError:
            return False
    return True


def _on_gpu(activation: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns an activation all of whose operations have kernels for GPUs in bfloat16.

    TensorFlow 2.12 has none for most activations and their gradients, and would compute those on the CPU.  ReLU is the
    same to the last bit; others are computed in float32.
    """
    if activation is tf.keras.activations.linear:
        return activation

    @functools.wraps(activation)
    def of_bfloat16(x: tf.Tensor) -> tf.Tensor:
        if x.dtype != tf.bfloat16:
            return activation(x)
        if activation is tf.keras.activations.relu:
            return _relu(x)
        return tf.cast(activation(tf.cast(x, tf.float32)), tf.bfloat16)

    return of_bfloat16


@tf.custom_gradient
def _relu(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    y = tf.maximum(x, tf.zeros((), x.dtype))
    return y, lambda gradient: tf.raw_ops.ReluGrad(gradients=gradient, features=y)


class MixedPrecisionTorso(tf.keras.layers.Layer):
    """A torso with weights and batch normalization in float32 and other computations in bfloat16.

    Its features are float32.  bfloat16 has the range of float32, so gradients need no scaling (unlike float16), and 8
    bits of precision.

    Args:
      torso: a torso of this library that has no variables yet.
      name: name of the layer.
    """

    def __init__(self, torso: tf.keras.layers.Layer, name: str | None = None):
        super().__init__(name=name)
        self._torso = torso
        policy = tf.keras.mixed_precision.Policy("mixed_bfloat16")
        for part in (torso, *torso.submodules):
            # Batch normalization stays in float32: TensorFlow has no kernel for bfloat16 on CPUs without AVX-512.
            if isinstance(part, _Layer) and not isinstance(part, tf.keras.layers.BatchNormalization):
                # The public way is a policy for the whole process, but other networks may be made in its other threads.
                part._set_dtype_policy(policy)
                for name in _ACTIVATIONS:
                    if callable(function := vars(part).get(name)):
                        setattr(part, name, _on_gpu(function))

    @property
    def torso(self) -> tf.keras.layers.Layer:
        """The torso that computes in bfloat16."""
        return self._torso

    def call(self, observation: Nest, training: bool | None = None) -> tf.Tensor:
        """Maps an observation nest `[N, ...]` to features `[N, F]`, float32."""
        return tf.cast(self._torso(observation, training=training), self.compute_dtype)
