"""Torsos that compute in bfloat16, with Keras's mixed precision."""

from typing import Literal

import tensorflow as tf

from ..data import Nest

_Layer = tf.keras.layers.Layer

Precision = Literal["float32", "bfloat16", "bfloat16_on_gpu"]
"""What torsos compute in; `bfloat16_on_gpu` is float32 in a process that has no GPU."""


def with_precision(torso: tf.keras.layers.Layer, precision: Precision) -> tf.keras.layers.Layer:
    """Returns a torso that has no variables yet as one of this precision; one without layers stays as it is."""
    on_gpu = precision == "bfloat16_on_gpu" and bool(tf.config.list_logical_devices("GPU"))
    if not (precision == "bfloat16" or on_gpu) or not any(isinstance(part, _Layer) for part in torso.submodules):
        return torso
    return MixedPrecisionTorso(torso)


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

    def call(self, observation: Nest, training: bool | None = None) -> tf.Tensor:
        """Maps an observation nest `[N, ...]` to features `[N, F]`, float32."""
        return tf.cast(self._torso(observation, training=training), self.compute_dtype)
