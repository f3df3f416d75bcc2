"""Residual networks for images."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ...errors import CallboardError
from .flatten import scale

RESNET_DEPTHS = (8, 20, 32, 44, 56)
"""Supported depths 6n + 2 of `ResNet`, for n = 1, 3, 5, 7, 9."""

_MOMENTUM = 0.9
_EPSILON = 1e-5


class ImpalaResNet(tf.keras.layers.Layer):
    """The deep residual network of IMPALA (Espeholt et al. 2018, figure 3, right, without the LSTM)."""

    def __init__(
        self,
        channels: Sequence[int] = (16, 32, 32),
        blocks: int = 2,
        features: int = 256,
        width: int = 1,
        activation: Any = "relu",
        kernel_initializer: str | None = None,
        name: str | None = None,
    ) -> None:
        """Creates sections of a convolution, a pooling that halves the image and residual blocks; then a dense layer.

        Args:
          channels: channels of each section.
          blocks: residual blocks per section.
          features: units of the dense layer.
          width: multiplier of all channels.
          activation: activation of all layers.
          kernel_initializer: name of an initializer; None for `lecun_normal`, and `he_normal` of the dense layer.
          name: name of the layer.
        """
        super().__init__(name=name)
        self._activation = tf.keras.activations.get(activation)
        kernel = kernel_initializer or "lecun_normal"
        self._sections = [
            _Section(width * section_channels, blocks, self._activation, kernel) for section_channels in channels
        ]
        self._flatten = tf.keras.layers.Flatten()
        kernel = kernel_initializer or "he_normal"
        self._dense = tf.keras.layers.Dense(features, activation=activation, kernel_initializer=kernel)

    def call(self, image: tf.Tensor) -> tf.Tensor:
        """Maps images `[N, height, width, channels]`, uint8 or floats of about 0..1, to `[N, features]`."""
        hidden = scale(image, self.compute_dtype)
        for section in self._sections:
            hidden = section(hidden)
        return self._dense(self._flatten(self._activation(hidden)))


class _Section(tf.keras.layers.Layer):
    """A convolution, max pooling with stride 2 and residual blocks."""

    def __init__(self, channels: int, blocks: int, activation: Any, kernel_initializer: str) -> None:
        super().__init__()
        self._convolution = _convolution(channels, kernel_initializer)
        self._pool = tf.keras.layers.MaxPool2D(3, strides=2, padding="same")
        self._blocks = [_Block(channels, activation, kernel_initializer) for _ in range(blocks)]

    def call(self, hidden: tf.Tensor) -> tf.Tensor:
        hidden = self._pool(self._convolution(hidden))
        for block in self._blocks:
            hidden = block(hidden)
        return hidden


class _Block(tf.keras.layers.Layer):
    """Two convolutions, each preceded by an activation, with an identity shortcut."""

    def __init__(self, channels: int, activation: Any, kernel_initializer: str) -> None:
        super().__init__()
        self._activation = activation
        self._convolutions = [_convolution(channels, kernel_initializer) for _ in range(2)]

    def call(self, hidden: tf.Tensor) -> tf.Tensor:
        # Without an operation between the sum and its ReLU, TensorFlow 2.12 fuses them although the sum is used twice,
        # then finds that out, logs `remapper failed`, and drops all fusions of the graph.
        residual = tf.ensure_shape(hidden, hidden.shape)
        for convolution in self._convolutions:
            residual = convolution(self._activation(residual))
        return hidden + residual


def _convolution(channels: int, kernel_initializer: str) -> tf.keras.layers.Conv2D:
    return tf.keras.layers.Conv2D(channels, 3, padding="same", kernel_initializer=kernel_initializer)


class ResNet(tf.keras.layers.Layer):
    """Residual network of depth 6n + 2 for small images (He et al. 2016, "Deep Residual Learning", section 4.2).

    A convolution and three sections of n blocks with two convolutions each; every convolution is followed by batch
    normalization.  The second and third sections halve the image and double the channels.  Shortcuts have no weights
    (option A).  The last of the 6n + 2 layers is the dense layer on top, that of a classifier (`resnet_classifier`) or
    of a policy head.

    With `training`, activations are normalized by the statistics of the batch over all replicas, which also update the
    moving averages; otherwise they are normalized by the moving averages.
    """

    def __init__(
        self, depth: int = 20, width: int = 1, l2: float = 1e-4, activation: Any = "relu", name: str | None = None
    ) -> None:
        """Creates a network whose kernels are initialized as in He et al. 2015.

        Args:
          depth: one of `RESNET_DEPTHS`.
          width: multiplier of all channels.
          l2: weight decay λ of the kernels; the layer's `losses` are λ/2 times the kernels' squared norms.
          activation: activation of all layers.
          name: name of the layer.

        Raises:
          CallboardError: if the depth is not supported.
        """
        super().__init__(name=name)
        if depth not in RESNET_DEPTHS:
            raise CallboardError(
                f"unknown depth {depth!r} of a ResNet; choose from {', '.join(map(str, RESNET_DEPTHS))}"
            )
        channels = [width * section_channels for section_channels in (16, 32, 64)]
        self._activation = tf.keras.activations.get(activation)
        self._first = _NormalizedConvolution(channels[0], 1, l2)
        self._blocks = [
            _NormalizedBlock(section_channels, 2 if section > 0 and block == 0 else 1, l2, self._activation)
            for section, section_channels in enumerate(channels)
            for block in range((depth - 2) // 6)
        ]

    def call(self, image: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps images `[N, height, width, channels]`, uint8 or floats, to `[N, 64 * width]`."""
        hidden = self._activation(self._first(scale(image, self.compute_dtype), training=training))
        for block in self._blocks:
            hidden = block(hidden, training=training)
        return tf.reduce_mean(hidden, axis=(1, 2))


def resnet_classifier(
    image_shape: Sequence[int], classes: int, depth: int = 20, width: int = 1, l2: float = 1e-4
) -> tf.keras.Model:
    """Builds a `ResNet` with a dense layer that maps images `[N, *image_shape]` to logits `[N, classes]`."""
    return tf.keras.Sequential(
        [
            tf.keras.Input(image_shape),
            ResNet(depth, width, l2),
            tf.keras.layers.Dense(classes, kernel_initializer="he_normal", kernel_regularizer=_decay(l2)),
        ]
    )


class BatchNormalization(tf.keras.layers.BatchNormalization):
    """Batch normalization over all replicas (Ioffe and Szegedy 2015), with moving averages that all replicas share.

    Keras keeps separate averages per replica and reduces them to their mean on every read.  With several learners a
    read is then a collective operation, and a learner that reads its weights alone to serve them would wait forever.
    """

    def __init__(self, **arguments: Any) -> None:
        """Passes `arguments` to Keras, with `synchronized` set when there are several replicas."""
        # With one replica the fused kernels, which cannot synchronize, are twice as fast on a CPU.
        super().__init__(**arguments, synchronized=tf.distribute.get_strategy().num_replicas_in_sync > 1)
        # The fused kernels would apply Bessel's correction to the moving variance; the others do not.
        self._bessels_correction_test_only = False

    def add_weight(self, *arguments: Any, **settings: Any) -> tf.Variable:
        """Adds a weight as in Keras, but keeps the first replica's moving averages, since all assign the same value."""
        if settings.get("synchronization") == tf.VariableSynchronization.ON_READ:
            settings["synchronization"] = tf.VariableSynchronization.ON_WRITE
            settings["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
        return super().add_weight(*arguments, **settings)


class _NormalizedConvolution(tf.keras.layers.Layer):
    """A convolution without bias, followed by batch normalization."""

    def __init__(self, channels: int, stride: int, l2: float) -> None:
        super().__init__()
        self._convolution = tf.keras.layers.Conv2D(
            channels,
            3,
            stride,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
            kernel_regularizer=_decay(l2),
        )
        self._normalization = BatchNormalization(momentum=_MOMENTUM, epsilon=_EPSILON)

    def call(self, hidden: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        # In mixed precision, activations are normalized in float32.
        return tf.cast(self._normalization(self._convolution(hidden), training=training), self.compute_dtype)


class _NormalizedBlock(tf.keras.layers.Layer):
    """Two normalized convolutions with a shortcut, which is subsampled and zero-padded where shapes differ."""

    def __init__(self, channels: int, stride: int, l2: float, activation: Any) -> None:
        super().__init__()
        self._activation = activation
        self._channels = channels
        self._stride = stride
        self._first = _NormalizedConvolution(channels, stride, l2)
        self._second = _NormalizedConvolution(channels, 1, l2)

    def call(self, hidden: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        residual = self._activation(self._first(hidden, training=training))
        residual = self._second(residual, training=training)
        shortcut = hidden[:, :: self._stride, :: self._stride]
        missing = self._channels - shortcut.shape[-1]
        shortcut = tf.pad(shortcut, ((0, 0), (0, 0), (0, 0), (missing // 2, missing - missing // 2)))
        return self._activation(residual + shortcut)


def _decay(l2: float) -> tf.keras.regularizers.Regularizer:
    return tf.keras.regularizers.L2(l2 / 2)
