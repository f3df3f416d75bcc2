"""Torsos made from the names in settings, for whole observations and for their parts."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ... import specs
from ...action_masks import has_mask, visible_spec
from ...errors import CallboardError, unknown
from ...runtime.tracing_lock import TRACING
from ..own_parts import check_own_part, make_own_part
from ..precision import Precision, with_precision
from .dense import Layers
from .residual import RESNET_DEPTHS, ImpalaResNet, ResNet
from .torsos import (
    ConvTorso,
    MaskHidingTorso,
    MLPTorso,
    NatureTorso,
    ObservationTorso,
    PartsTorso,
    check_filters,
    check_nature_images,
    part_of,
    rest_of,
)

TORSOS = ("auto", "mlp", "conv", "nature", "impala", *(f"resnet{depth}" for depth in RESNET_DEPTHS))

Torso = str | Callable[..., Any]
"""A torso name (see `make_torso`), `package.module:factory`, a factory, or a Keras layer or model.

A factory takes the `specs.EnvironmentSpec` and returns a `tf.keras.layers.Layer` or `tf.keras.Model`.
"""

_WIDENED = re.compile(r"(impala|resnet\d+)-x([1-9]\d*)")


def make_torso(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Any = "tanh",
    filters: Sequence[Sequence[int]] = (),
    image_features: int | None = None,
    layer_norm: bool = False,
    precision: Precision = "float32",
    image_activation: Any = None,
    image_initializer: str | None = None,
    torsos: Mapping[str, Torso] = MappingProxyType({}),
    torso_options: Mapping[str, Any] = MappingProxyType({}),
) -> tf.keras.layers.Layer:
    """Makes a torso for an environment's observations; it does not see an action mask.

    Args:
      spec: the environment's spec.
      torso: `mlp` flattens and concatenates all observations.  `nature` (DQN), `impala` (deep residual network) and
        `resnet8` to `resnet56` (`residual.ResNet`) apply a separate network to each image and an MLP to the rest.
        `impala-xk`, for example `impala-x4`, and `resnet20-xk` have k times the channels.  `conv` has the convolutions
        `filters`.  `auto` is `conv` if there are images and filters, `impala` if there are images, else `mlp`.  Any
        other `Torso` is the user's own.
      hidden_sizes: layer sizes of the MLP.
      activation: activation of the MLP.
      filters: channels, kernel size and stride of each convolution of `conv`.
      image_features: units of the dense layer after the convolutions; None for the torso's default.
      layer_norm: whether the MLP and the dense layer of `conv` are normalized, see `dense.Layers`.
      precision: what a torso by name computes in; features are float32, see `precision.MixedPrecisionTorso`.
      image_activation: activation of the torsos for images; None for that of the MLP in `conv`, and ReLUs in others.
      image_initializer: name of the initializer of the torsos for images but ResNets; None for the torso's default.
      torsos: torsos of parts of the observation, by names such as `camera` or `robot/arm`; `torso` is for the rest.
        The features of all are concatenated.
      torso_options: options of the factory `torso`, by name.

    Raises:
      CallboardError: if the name is unknown, there is no such part, images are too small for `nature`, or a factory
        returns something other than a Keras layer.
    """
    of_images = (image_activation, image_initializer)
    arguments = (hidden_sizes, activation, filters, image_features, layer_norm, precision, *of_images)
    if has_mask(spec.observation):
        return MaskHidingTorso(make_torso(visible_spec(spec), torso, *arguments, torsos, torso_options))
    if torsos:
        parts = _part_specs(spec, torsos)
        rest = spec._replace(observation=rest_of(spec.observation, torsos))
        made = [make_torso(part, torsos[name], *arguments) for name, part in parts.items()]
        has_rest = bool(tree.flatten(rest.observation))
        of_rest = make_torso(rest, torso, *arguments, torso_options=torso_options) if has_rest else None
        return PartsTorso(list(parts), made, of_rest)
    if isinstance(torso, str) and ":" not in torso and precision != "float32":
        return with_precision(make_torso(spec, torso, *arguments[:5], "float32", *of_images), precision)
    if isinstance(torso, tf.keras.layers.Layer):
        return torso
    if callable(torso):
        with TRACING:
            return _checked_layer(torso(spec, **torso_options), getattr(torso, "__name__", repr(torso)))
    if ":" in torso:
        return _checked_layer(make_own_part("torso", torso, torso_options, spec), torso)
    _check_torso_name(spec, torso)
    if torso == "nature":
        check_nature_images(spec.observation)
    check_filters(spec.observation, filters)
    name, width = _name_and_width(torso)
    if name == "auto" and filters:
        name = "conv"
    of_image: dict[str, Any] = {"activation": image_activation or (activation if name == "conv" else "relu")}
    if image_features is not None and not name.startswith("resnet"):
        of_image["features"] = image_features
    if image_initializer is not None and not name.startswith("resnet"):
        of_image["kernel_initializer"] = image_initializer

    def make_mlp(observation: Any) -> tf.keras.layers.Layer:
        return MLPTorso(observation, Layers(hidden_sizes, activation, layer_norm))

    def make_image_torso() -> tf.keras.layers.Layer:
        if name == "conv":
            return ConvTorso(filters, layer_norm=layer_norm, **of_image)
        if name == "nature":
            return NatureTorso(**of_image)
        if name.startswith("resnet"):
            return ResNet(int(name.removeprefix("resnet")), width, **of_image)
        return ImpalaResNet(width=width, **of_image)

    if name == "mlp" or not _has_images(spec):
        return make_mlp(spec.observation)
    return ObservationTorso(spec.observation, make_image_torso, make_mlp)


def check_torso(
    spec: specs.EnvironmentSpec,
    torso: Torso,
    filters: Sequence[Sequence[int]] = (),
    torsos: Mapping[str, Torso] = MappingProxyType({}),
    torso_options: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Checks that torsos fit an environment's observations, without building them.

    Args:
      spec: the environment's spec, with single frames, not stacked.
      torso: see `make_torso`, as for the arguments below.
      filters: the convolutions of the torso `conv`.
      torsos: torsos of parts of the observation.
      torso_options: options of the factory `torso`.

    Raises:
      CallboardError: as in `make_torso`, except that factories are not called; and if an image torso might take an
        image's channels for its height.
    """
    spec = visible_spec(spec)
    if filters and not _has_images(spec):
        raise CallboardError(f"filters are for images, but the observation is {specs.describe(spec.observation)}")
    for name, part in _part_specs(spec, torsos).items():
        _check_single(part, torsos[name], filters)
    rest = spec._replace(observation=rest_of(spec.observation, torsos)) if torsos else spec
    if tree.flatten(rest.observation):
        _check_single(rest, torso, filters, torso_options)
    elif torso != "auto":
        raise CallboardError(f"every part of the observation has a torso of its own: leave torso {torso!r} out")


def _check_single(
    spec: specs.EnvironmentSpec,
    torso: Torso,
    filters: Sequence[Sequence[int]],
    torso_options: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    if not isinstance(torso, str):
        return
    if ":" in torso:
        check_own_part("torso", torso, torso_options, spec)
        return
    _check_torso_name(spec, torso)
    for leaf in tree.flatten(spec.observation):
        if torso != "mlp" and specs.is_image(leaf) and specs.has_channels_first(leaf.shape) is not False:
            raise CallboardError(
                f"torso {torso!r} needs images of height x width x channels, and the first axis of an observation "
                f"{tuple(leaf.shape)} may be its channels: move them last, or swap height and width where they are "
                "last, or use torso 'mlp'"
            )
        if torso == "auto" and len(leaf.shape) == 4 and leaf.dtype == np.uint8:
            raise CallboardError(
                f"an observation of bytes {tuple(leaf.shape)} may be a stack of images: leave out what stacks them and "
                "set agent.frame_stack, or use torso 'mlp' or one of your own"
            )
    if torso == "nature":
        check_nature_images(spec.observation)
    if torso in ("auto", "conv"):
        check_filters(spec.observation, filters)


def _part_specs(spec: specs.EnvironmentSpec, torsos: Mapping[str, Torso]) -> dict[str, specs.EnvironmentSpec]:
    """Returns the spec that the torso of each part sees.

    Raises:
      CallboardError: there is no such part, or it is in another one that has a torso.
    """
    if not torsos:
        return {}
    paths = [tuple(map(str, path)) for path, _ in tree.flatten_with_path(spec.observation)]
    known = sorted({"/".join(path[:length]) for path in paths for length in range(1, len(path) + 1)})
    if not known:
        raise CallboardError(
            f"torsos are for parts of an observation, but it is {specs.describe(spec.observation)}: give torso alone"
        )
    for name in torsos:
        if name not in known:
            raise unknown("part of the observation", name, known, f"torsos may be for {', '.join(known)}")
        within = next((other for other in torsos if name.startswith(f"{other}/")), None)
        if within is not None:
            raise CallboardError(f"torsos has both {within!r} and {name!r}, a part of it: leave one of them out")
    return {name: spec._replace(observation=part_of(spec.observation, name)) for name in torsos}


def _check_torso_name(spec: specs.EnvironmentSpec, torso: str) -> None:
    name, _ = _name_and_width(torso)
    if name not in TORSOS:
        raise unknown("torso", name, TORSOS, f"choose from {', '.join(TORSOS)}, or write package.module:factory")
    if name not in ("auto", "mlp") and not _has_images(spec):
        raise CallboardError(
            f"torso {torso!r} is for images, but the observation is {specs.describe(spec.observation)}; use 'mlp'"
        )


def _name_and_width(torso: str) -> tuple[str, int]:
    widened = _WIDENED.fullmatch(torso)
    return (widened[1], int(widened[2])) if widened else (torso, 1)


def _has_images(spec: specs.EnvironmentSpec) -> bool:
    return any(specs.is_image(leaf) for leaf in tree.flatten(spec.observation))


def _checked_layer(made: Any, name: str) -> tf.keras.layers.Layer:
    if not isinstance(made, tf.keras.layers.Layer):
        raise CallboardError(f"torso {name!r} must return a Keras layer or model, not {type(made).__name__}")
    return made
