"""Torsos: map observations to features."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tree

from ...action_masks import without_mask
from ...data import Nest
from ...errors import CallboardError
from ...specs import is_image
from ..normalization import RunningNormalizer
from .dense import Layers, hidden_layers
from .flatten import flat_features, scale, scale_by_bounds

_NATURE_SMALLEST = 36
"""Smallest height and width for which the convolutions of `NatureTorso` have an output."""


class MLPTorso(tf.keras.layers.Layer):
    """Dense layers on all observations of a nest, flattened and concatenated by `flatten.flat_features`."""

    def __init__(self, spec: Nest, layers: Layers, name: str | None = None) -> None:
        """Creates layers for observations with the specs `spec`, a nest of dm_env specs."""
        super().__init__(name=name)
        self._spec = spec
        self._layers = hidden_layers(layers)

    @property
    def hidden(self) -> Sequence[tf.keras.layers.Layer]:
        """The layers."""
        return self._layers

    def call(self, observation: Nest) -> tf.Tensor:
        """Maps a nest of `[N, ...]` to `[N, layers.sizes[-1]]`."""
        features = flat_features(self._spec, observation, self.compute_dtype)
        for layer in self._layers:
            features = layer(features)
        return features


def check_nature_images(spec: Nest) -> None:
    """Checks that the images of an observation, a nest of dm_env specs, are large enough for `NatureTorso`.

    Not in the layer itself: Keras adds several lines to an error that a layer raises when it is called.

    Raises:
      CallboardError: an image is too small.
    """
    for leaf in tree.flatten(spec):
        if is_image(leaf) and min(leaf.shape[:2]) < _NATURE_SMALLEST:
            height, width, _ = leaf.shape
            raise CallboardError(
                f"torso 'nature' needs images of at least {_NATURE_SMALLEST}x{_NATURE_SMALLEST}, not {height}x{width}; "
                "use 'impala'"
            )


class NatureTorso(tf.keras.layers.Layer):
    """The convolutional network of DQN (Mnih et al. 2015, "Model architecture"), designed for 84 x 84 images."""

    def __init__(
        self,
        features: int = 512,
        activation: Any = "relu",
        kernel_initializer: str = "he_uniform",
        name: str | None = None,
    ) -> None:
        """Creates three convolutions and a dense layer of `features` units, all with an activation."""
        super().__init__(name=name)
        of_layer = {"activation": activation, "kernel_initializer": kernel_initializer}
        self._layers = [
            tf.keras.layers.Conv2D(channels, kernel, stride, **of_layer)
            for channels, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1))
        ]
        self._flatten = tf.keras.layers.Flatten()
        self._dense = tf.keras.layers.Dense(features, **of_layer)

    def call(self, image: tf.Tensor) -> tf.Tensor:
        """Maps images `[N, height, width, channels]`, uint8 or floats of about 0..1, to `[N, features]`.

        Height and width are at least 36, see `check_nature_images`.
        """
        features = scale(image, self.compute_dtype)
        for layer in self._layers:
            features = layer(features)
        return self._dense(self._flatten(features))


def check_filters(spec: Nest, filters: Sequence[Sequence[int]]) -> None:
    """Checks that the images of an observation, a nest of dm_env specs, are large enough for convolutions.

    Raises:
      CallboardError: a convolution's kernel is larger than its input.
    """
    for leaf in tree.flatten(spec):
        if not is_image(leaf):
            continue
        height, width, _ = leaf.shape
        for number, (_, kernel, stride) in enumerate(filters, start=1):
            if min(height, width) < kernel:
                raise CallboardError(
                    f"filter {number} of network.filters, {list(filters[number - 1])}, is larger than its input of "
                    f"{height}x{width}: use fewer filters, smaller kernels (the second number) or strides (the third)"
                )
            height, width = ((size - kernel) // stride + 1 for size in (height, width))


class ConvEncoder(tf.keras.layers.Layer):
    """Convolutions without padding, whose outputs are flattened."""

    def __init__(
        self,
        filters: Sequence[Sequence[int]],
        activation: Any = "relu",
        kernel_initializer: str | None = None,
        name: str | None = None,
    ) -> None:
        """Creates convolutions with channels, kernel sizes and strides; None for orthogonal kernels of gain sqrt(2)."""
        super().__init__(name=name)
        self._convolutions = [
            tf.keras.layers.Conv2D(
                channels,
                kernel,
                stride,
                activation=activation,
                kernel_initializer=kernel_initializer or tf.keras.initializers.Orthogonal(2**0.5),
            )
            for channels, kernel, stride in filters
        ]
        self._flatten = tf.keras.layers.Flatten()

    def call(self, image: tf.Tensor) -> tf.Tensor:
        """Maps images `[N, height, width, channels]`, uint8 or floats of about 0..1, to `[N, F]`.

        They are large enough for all convolutions, see `check_filters`.
        """
        hidden = scale(image, self.compute_dtype)
        for layer in self._convolutions:
            hidden = layer(hidden)
        return self._flatten(hidden)


class ConvTorso(ConvEncoder):
    """Convolutions without padding, and a dense layer."""

    def __init__(
        self,
        filters: Sequence[Sequence[int]],
        activation: Any = "relu",
        features: int = 512,
        layer_norm: bool = False,
        kernel_initializer: str = "he_uniform",
        name: str | None = None,
    ) -> None:
        """Creates the layers.

        Args:
          filters: channels, kernel size and stride of each convolution.
          activation: activation of all layers.
          features: units of the dense layer.
          layer_norm: whether the dense layer is normalized, as by `dense.Layers`.
          kernel_initializer: name of the initializer of all kernels.
          name: name of the layer.
        """
        super().__init__(filters, activation, kernel_initializer, name)
        self._layers = hidden_layers(Layers((features,), activation, layer_norm), kernel_initializer)

    def call(self, image: tf.Tensor) -> tf.Tensor:
        """Maps images as a `ConvEncoder` takes them to `[N, features]`."""
        hidden = super().call(image)
        for layer in self._layers:
            hidden = layer(hidden)
        return hidden


class ObservationTorso(tf.keras.layers.Layer):
    """A separate torso for each image of a nest and one MLP for the rest, with their features concatenated."""

    sizes: tuple[int, ...] = ()
    """Numbers of features of the torsos, after the first call."""

    def __init__(
        self,
        spec: Nest,
        make_image_torso: Callable[[], tf.keras.layers.Layer],
        make_vector_torso: Callable[[list[Any]], tf.keras.layers.Layer],
        name: str | None = None,
    ) -> None:
        """Creates the torsos for an observation nest.

        Args:
          spec: nest of dm_env specs of the observation.
          make_image_torso: called once per image (`specs.is_image`); the torso takes pixels as floats of 0..1.
          make_vector_torso: called with the list of all other specs, if there are any.
          name: name of the layer.
        """
        super().__init__(name=name)
        leaves = self._leaves = tree.flatten(spec)
        self._images = [index for index, leaf in enumerate(leaves) if is_image(leaf)]
        self._vectors = [index for index, leaf in enumerate(leaves) if not is_image(leaf)]
        self._image_torsos = [make_image_torso() for _ in self._images]
        self._vector_torso = make_vector_torso([leaves[index] for index in self._vectors]) if self._vectors else None

    def call(self, observation: Nest) -> tf.Tensor:
        """Maps a nest of `[N, ...]` to `[N, F]`."""
        leaves = tree.flatten(observation)
        features = [
            torso(scale_by_bounds(self._leaves[index], tf.convert_to_tensor(leaves[index]), self.compute_dtype))
            for index, torso in zip(self._images, self._image_torsos, strict=True)
        ]
        if self._vector_torso is not None:
            features.append(self._vector_torso([leaves[index] for index in self._vectors]))
        self.sizes = tuple(part.shape[-1] for part in features)
        return features[0] if len(features) == 1 else tf.concat(features, axis=-1)

    def parts(self, observation: Nest) -> list[tuple[tf.keras.layers.Layer, Nest]]:
        """Returns the torsos in the order of their features, each with its part of a nest like an observation."""
        leaves = tree.flatten(observation)
        parts = [(torso, leaves[index]) for index, torso in zip(self._images, self._image_torsos, strict=True)]
        vectors = [leaves[index] for index in self._vectors]
        return parts if self._vector_torso is None else [*parts, (self._vector_torso, vectors)]


class MaskHidingTorso(tf.keras.layers.Layer):
    """A torso that sees observations without their action mask."""

    def __init__(self, torso: tf.keras.layers.Layer, name: str | None = None) -> None:
        """Takes the torso for observations without a mask."""
        super().__init__(name=name)
        self._torso = torso

    @property
    def torso(self) -> tf.keras.layers.Layer:
        """The torso for observations without a mask."""
        return self._torso

    def call(self, observation: Nest, training: bool = False) -> tf.Tensor:
        """Maps a nest of `[N, ...]` with an action mask to what the torso makes of the rest."""
        return self._torso(without_mask(observation), training=training)


class NormalizingTorso(tf.keras.layers.Layer):
    """A torso that sees normalized observations."""

    def __init__(self, normalizer: RunningNormalizer, torso: tf.keras.layers.Layer, name: str | None = None) -> None:
        """Takes the torso for observations with the specs `RunningNormalizer.normalized_spec`."""
        super().__init__(name=name)
        self._normalizer = normalizer
        self._torso = torso

    def call(self, observation: Nest, training: bool = False) -> tf.Tensor:
        """Maps a nest of `[N, ...]` to what the torso makes of it."""
        return self._torso(self._normalizer(observation), training=training)


class PartsTorso(tf.keras.layers.Layer):
    """Separate torsos for parts of an observation, with their features concatenated."""

    sizes: tuple[int, ...] = ()
    """Numbers of features of the torsos, after the first call."""

    def __init__(
        self,
        parts: Sequence[str],
        torsos: Sequence[tf.keras.layers.Layer],
        rest: tf.keras.layers.Layer | None,
        name: str | None = None,
    ) -> None:
        """Takes torsos for observations of several parts.

        Args:
          parts: names of the parts, see `part_of`.
          torsos: the torso of each.
          rest: the torso for the rest of the observation, see `rest_of`; None if there is no rest.
          name: name of the layer.
        """
        super().__init__(name=name)
        self._parts = tuple(parts)
        self._torsos = list(torsos)
        self._rest = rest

    def call(self, observation: Nest, training: bool = False) -> tf.Tensor:
        """Maps a nest of `[N, ...]` to `[N, F]`."""
        features = [torso(part, training=training) for torso, part in self.parts(observation)]
        self.sizes = tuple(part.shape[-1] for part in features)
        return tf.concat(features, axis=-1)

    def parts(self, observation: Nest) -> list[tuple[tf.keras.layers.Layer, Nest]]:
        """Returns the torsos in the order of their features, each with its part of a nest like an observation."""
        parts = [(torso, part_of(observation, name)) for name, torso in zip(self._parts, self._torsos, strict=True)]
        return parts if self._rest is None else [*parts, (self._rest, rest_of(observation, self._parts))]


def part_of(observation: Nest, name: str) -> Nest:
    """Returns a part of an observation, or of its spec: `camera`, or `robot/0` for the first element of `robot`."""
    for key in name.split("/"):
        if isinstance(observation, Mapping):
            observation = next(part for own, part in observation.items() if str(own) == key)
        else:
            observation = observation[int(key)]
    return observation


def rest_of(observation: Nest, names: Collection[str]) -> Nest:
    """Returns an observation, or its spec, without the parts `names`, and without what is then empty."""

    def without(part: Nest, path: tuple[str, ...]) -> Nest:
        if not isinstance(part, Mapping | tuple | list):
            return part
        items = part.items() if isinstance(part, Mapping) else enumerate(part)
        kept = {
            key: without(inner, (*path, str(key))) for key, inner in items if "/".join((*path, str(key))) not in names
        }
        kept = {key: inner for key, inner in kept.items() if tree.flatten(inner)}
        return kept if isinstance(part, Mapping) else tuple(kept.values())

    return without(observation, ())
