"""Residual networks for images."""

from collections.abc import Sequence

import tensorflow as tf

from .features import scale


class ImpalaResNet(tf.keras.layers.Layer):
    """The deep residual network of IMPALA (Espeholt et al. 2018, figure 3, right, without the LSTM)."""

    def __init__(
        self,
        channels: Sequence[int] = (16, 32, 32),
        blocks: int = 2,
        features: int = 256,
        width: int = 1,
        name: str | None = None,
    ) -> None:
        """Sections of a convolution, a pooling that halves the image, and residual blocks; then a dense layer.

        Args:
          channels: of each section.
          blocks: residual blocks in each section.
          features: units of the dense layer.
          width: multiplies all channels.
          name: of the layer.
        """
        super().__init__(name=name)
        self._sections = [_Section(width * section_channels, blocks) for section_channels in channels]
        self._flatten = tf.keras.layers.Flatten()
        self._dense = tf.keras.layers.Dense(features, activation="relu", kernel_initializer="he_normal")

    def call(self, image: tf.Tensor) -> tf.Tensor:
        """Image `[N, height, width, channels]`, bytes or floats of about 0..1 -> `[N, features]`."""
        hidden = scale(image, self.compute_dtype)
        for section in self._sections:
            hidden = section(hidden)
        return self._dense(self._flatten(tf.nn.relu(hidden)))


class _Section(tf.keras.layers.Layer):
    """Convolution, max pooling with stride 2, residual blocks."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self._convolution = _convolution(channels)
        self._pool = tf.keras.layers.MaxPool2D(3, strides=2, padding="same")
        self._blocks = [_Block(channels) for _ in range(blocks)]

    def call(self, hidden: tf.Tensor) -> tf.Tensor:
        hidden = self._pool(self._convolution(hidden))
        for block in self._blocks:
            hidden = block(hidden)
        return hidden


class _Block(tf.keras.layers.Layer):
    """Two convolutions, each after a ReLU, around which the input is carried unchanged."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self._convolutions = [_convolution(channels) for _ in range(2)]

    def call(self, hidden: tf.Tensor) -> tf.Tensor:
        residual = hidden
        for convolution in self._convolutions:
            residual = convolution(tf.nn.relu(residual))
        return hidden + residual


def _convolution(channels: int) -> tf.keras.layers.Conv2D:
    return tf.keras.layers.Conv2D(channels, 3, padding="same", kernel_initializer="lecun_normal")
