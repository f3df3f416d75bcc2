"""Default networks, built from the names of torsos and cores."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from .. import specs
from ..action_masks import has_mask, visible_spec
from ..errors import CallboardError, unknown
from ..named_objects import import_object
from .action_parts import ActionParts
from .action_policy import is_single_box
from .composed_heads import AutoregressiveValueHead, ComposedValueHead
from .core_factory import check_own_parts, make_core, make_own_head
from .heads import DistributionalQHead, DuelingQHead, GaussianValueHead, PolicyValueHead, QHead, ValueHead
from .implicit_quantiles import ImplicitQuantileHead
from .network import Network
from .network_settings import NetworkSettings, PolicyValueNetworkSettings, PopArtSettings
from .normalization import RunningNormalizer, WithoutPart
from .popart import PolicyWithPopArt, PopArtValueHead, check_popart, make_popart_head
from .precision import Precision, with_precision
from .residual import RESNET_DEPTHS, ImpalaResNet, ResNet
from .separate import SeparateNetworks, check_critic_state
from .stochastic_layers import NoisyLayers
from .torsos import (
    ConvTorso,
    MaskHidingTorso,
    MLPTorso,
    NatureTorso,
    ObservationTorso,
    check_filters,
    check_nature_images,
)

TORSOS = ("auto", "mlp", "conv", "nature", "impala", *(f"resnet{depth}" for depth in RESNET_DEPTHS))

Torso = str | Callable[..., Any]
"""A torso name (see `make_torso`), `package.module:factory`, a factory, or a Keras layer or model.

A factory takes the `specs.EnvironmentSpec` and returns a `tf.keras.layers.Layer` or `tf.keras.Model`.
"""

_WIDENED = re.compile(r"(impala|resnet\d+)-x([1-9]\d*)")


def policy_value_network(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    core: str = "none",
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Any = "tanh",
    lstm_size: int = 256,
    previous_inputs: bool = False,
    normalize_observations: bool = False,
    head_sizes: Sequence[int] = (),
    shared: bool = True,
    layer_norm: bool = False,
    filters: Sequence[Sequence[int]] = (),
    image_features: int | None = None,
    precision: Precision = "float32",
    core_options: Mapping[str, Any] = MappingProxyType({}),
    head: str | None = None,
    head_options: Mapping[str, Any] = MappingProxyType({}),
    critic_state: str | None = None,
    popart: PopArtSettings = PopArtSettings(),  # noqa: B008
) -> Network:
    """Builds a network for discrete actions that outputs `heads.PolicyValue`, including all variables.

    Args:
      spec: the environment's spec.
      torso: see `make_torso`.
      core: see `make_core`.
      hidden_sizes: layer sizes of the MLP for vector observations.
      activation: activation of that MLP and of the head.
      lstm_size: units of the LSTM or GRU.
      previous_inputs: whether the core also takes the previous action and reward.
      normalize_observations: whether the network has a `normalization.RunningNormalizer`.
      head_sizes: sizes of separate hidden layers for policy and value, after the core.
      shared: whether policy and value share torso and core.
      layer_norm: whether hidden layers are normalized, as in `dense.hidden_layers`.
      filters: see `make_torso`.
      image_features: see `make_torso`.
      precision: see `make_torso`.
      core_options: see `make_core`.
      head: `package.module:factory` of another head, which takes the spec and `head_options`.
      head_options: options of that head.
      critic_state: key of a part of the observation that only the value sees, with `shared` false; None for none.
      popart: see `PopArtSettings`.

    Raises:
      CallboardError: if a name is unknown, or the action is not a single discrete choice.
    """
    if not isinstance(spec.action, dm_specs.DiscreteArray):
        raise CallboardError(f"a categorical policy needs one discrete action, not {specs.describe(spec.action)}")
    num_actions = spec.action.num_values
    image = (filters, image_features, layer_norm, precision)
    parts = _Parts(spec, torso, core, hidden_sizes, activation, lstm_size, image, core_options)
    return _policy_and_value(
        parts,
        lambda with_value: PolicyValueHead(num_actions, head_sizes, activation, layer_norm, with_value),
        shared,
        popart,
        (head_sizes, activation, layer_norm),
        None if head is None else functools.partial(make_own_head, head, spec, head_options),
        normalize_observations,
        previous_inputs,
        critic_state,
    )


def gaussian_value_network(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    core: str = "none",
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Any = "tanh",
    lstm_size: int = 256,
    previous_inputs: bool = False,
    normalize_observations: bool = False,
    head_sizes: Sequence[int] = (),
    initial_log_std: float = 0.0,
    std_from_features: bool = False,
    shared: bool = True,
    layer_norm: bool = False,
    filters: Sequence[Sequence[int]] = (),
    image_features: int | None = None,
    precision: Precision = "float32",
    core_options: Mapping[str, Any] = MappingProxyType({}),
    head: str | None = None,
    head_options: Mapping[str, Any] = MappingProxyType({}),
    critic_state: str | None = None,
    popart: PopArtSettings = PopArtSettings(),  # noqa: B008
    autoregressive: bool = False,
) -> Network:
    """Builds a network for continuous actions that outputs `heads.GaussianValue`, including all variables.

    For actions of several parts it outputs `composed_heads.ComposedValue` or `composed_heads.AutoregressiveValue`.

    Args:
      spec: the environment's spec.
      torso: see `make_torso`.
      core: see `make_core`.
      hidden_sizes: layer sizes of the MLP for vector observations.
      activation: activation of all MLPs.
      lstm_size: units of the LSTM or GRU.
      previous_inputs: whether the core also takes the previous action and reward.
      normalize_observations: whether the network has a `normalization.RunningNormalizer`.
      head_sizes: sizes of separate hidden layers for policy and value, after the core.
      initial_log_std: initial logarithm of the policy's standard deviation.
      std_from_features: whether the standard deviation depends on the observation.
      shared: whether policy and value share torso and core.
      layer_norm: whether hidden layers are normalized, as in `dense.hidden_layers`.
      filters: see `make_torso`.
      image_features: see `make_torso`.
      precision: see `make_torso`.
      core_options: see `make_core`.
      head: `package.module:factory` of another head, which takes the spec and `head_options`.
      head_options: options of that head.
      critic_state: key of a part of the observation that only the value sees, with `shared` false; None for none.
      popart: see `PopArtSettings`.
      autoregressive: whether each part of an action of several parts sees the parts before it.

    Raises:
      CallboardError: if a name is unknown, or a part of the action is neither discrete nor floats with bounds.
    """
    action = ActionParts(spec.action)
    image = (filters, image_features, layer_norm, precision)
    parts = _Parts(spec, torso, core, hidden_sizes, activation, lstm_size, image, core_options)

    def make_head(with_value: bool) -> Any:
        std: dict[str, Any] = {"initial_log_std": initial_log_std, "std_from_features": std_from_features}
        std |= {"layer_norm": layer_norm, "with_value": with_value}
        if is_single_box(spec):
            return GaussianValueHead(action.numbers, head_sizes, activation, **std)
        kind = AutoregressiveValueHead if autoregressive else ComposedValueHead
        return kind(action, head_sizes, activation, **std)

    return _policy_and_value(
        parts,
        make_head,
        shared,
        popart,
        (head_sizes, activation, layer_norm),
        None if head is None else functools.partial(make_own_head, head, spec, head_options),
        normalize_observations,
        previous_inputs,
        critic_state,
    )


def q_network(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    core: str = "none",
    hidden_sizes: Sequence[int] = (128, 128),
    activation: Any = "relu",
    lstm_size: int = 256,
    dueling: bool = True,
    stream_size: int = 0,
    previous_inputs: bool = False,
    atoms: int | None = None,
    layer_norm: bool = False,
    filters: Sequence[Sequence[int]] = (),
    image_features: int | None = None,
    precision: Precision = "float32",
    core_options: Mapping[str, Any] = MappingProxyType({}),
    head: str | None = None,
    head_options: Mapping[str, Any] = MappingProxyType({}),
    fractions: int | None = None,
    noisy_sigma: float | None = None,
) -> Network:
    """Builds a network for discrete actions that outputs action values `[..., A]`, including all variables.

    Args:
      spec: the environment's spec, with observations as the network takes them (frames stacked).
      torso: see `make_torso`.
      core: see `make_core`.
      hidden_sizes: layer sizes of the MLP for vector observations.
      activation: activation of that MLP and of the head.
      lstm_size: units of the LSTM or GRU.
      dueling: whether to use `heads.DuelingQHead` instead of `heads.QHead`.
      stream_size: units of the hidden layer in each stream of the head; 0 for none.
      previous_inputs: whether the core also takes the previous action and reward.
      atoms: numbers M of a distribution for each action, so that outputs are `[..., A, M]`; None for values alone.
      layer_norm: whether hidden layers are normalized, as in `dense.hidden_layers`.
      filters: see `make_torso`.
      image_features: see `make_torso`.
      precision: see `make_torso`.
      core_options: see `make_core`.
      head: `package.module:factory` of another head, which takes the spec and `head_options`.
      head_options: options of that head.
      fractions: number of sampled fractions, so that outputs are `implicit_quantiles.ImplicitQuantiles`; None for
        values, or for what `atoms` says.
      noisy_sigma: initial scale of the noise of noisy layers in the head (`stochastic_layers.NoisyDense`); None for
        layers without noise.

    Raises:
      CallboardError: if a name is unknown, or the action is not a single discrete choice.
    """
    if not isinstance(spec.action, dm_specs.DiscreteArray):
        raise CallboardError(f"Q-learning needs one discrete action, not {specs.describe(spec.action)}")
    image = (filters, image_features, layer_norm, precision)
    parts = _Parts(spec, torso, core, hidden_sizes, activation, lstm_size, image, core_options)
    body = parts.body()
    if head is not None:
        made = make_own_head(head, spec, head_options)
    else:
        make_noisy = None if noisy_sigma is None else NoisyLayers(noisy_sigma)
        actions, layers = spec.action.num_values, (activation, layer_norm, make_noisy)
        if atoms is not None:
            made = DistributionalQHead(actions, atoms, stream_size, dueling, *layers)
        else:
            made = (DuelingQHead if dueling else QHead)(actions, stream_size, *layers)
        if fractions is not None:
            made = ImplicitQuantileHead(fractions, made)
    return Network(spec, **body, head=made, previous_inputs=previous_inputs)


def make_torso(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Any = "tanh",
    filters: Sequence[Sequence[int]] = (),
    image_features: int | None = None,
    layer_norm: bool = False,
    precision: Precision = "float32",
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
      activation: activation of the MLP and of `conv`.
      filters: channels, kernel size and stride of each convolution of `conv`.
      image_features: units of the dense layer after the convolutions; None for the torso's default.
      layer_norm: whether the MLP and the dense layer of `conv` are normalized, see `dense.hidden_layers`.
      precision: what a torso by name computes in; features are float32, see `precision.MixedPrecisionTorso`.

    Raises:
      CallboardError: if the name is unknown, images are too small for `nature`, or a factory returns something other
        than a Keras layer.
    """
    if isinstance(torso, str) and ":" not in torso and precision != "float32":
        arguments = (hidden_sizes, activation, filters, image_features, layer_norm)
        return with_precision(make_torso(spec, torso, *arguments), precision)
    if has_mask(spec.observation):
        visible = visible_spec(spec)
        return MaskHidingTorso(
            make_torso(visible, torso, hidden_sizes, activation, filters, image_features, layer_norm)
        )
    if isinstance(torso, tf.keras.layers.Layer):
        return torso
    if callable(torso):
        return _made_by_user(torso, spec, getattr(torso, "__name__", repr(torso)))
    if ":" in torso:
        return _made_by_user(_load(torso), spec, torso)
    _check_torso_name(spec, torso)
    if torso == "nature":
        check_nature_images(spec.observation)
    check_filters(spec.observation, filters)
    name, width = _name_and_width(torso)
    if name == "auto" and filters:
        name = "conv"
    features: dict[str, Any] = {} if image_features is None else {"features": image_features}

    def make_mlp(observation: Any) -> tf.keras.layers.Layer:
        return MLPTorso(observation, hidden_sizes, activation, layer_norm)

    def make_image_torso() -> tf.keras.layers.Layer:
        if name == "conv":
            return ConvTorso(filters, activation, layer_norm=layer_norm, **features)
        if name == "nature":
            return NatureTorso(**features)
        if name.startswith("resnet"):
            return ResNet(int(name.removeprefix("resnet")), width)
        return ImpalaResNet(width=width, **features)

    if name == "mlp" or not _has_images(spec):
        return make_mlp(spec.observation)
    return ObservationTorso(spec.observation, make_image_torso, make_mlp)


def check_network(spec: specs.EnvironmentSpec, settings: NetworkSettings) -> None:
    """Checks that a network fits an environment's observations, without building it.

    Raises:
      CallboardError: as in `check_torso`; the factory of a core or head does not exist or take its options; or the
        observation has no part for the critic alone or for PopArt's task.
    """
    check_torso(spec, settings.torso, settings.filters)
    check_own_parts(spec, settings)
    if isinstance(settings, PolicyValueNetworkSettings):
        check_critic_state(spec.observation, settings.critic_state)
        check_popart(spec.observation, settings.popart)


def check_torso(spec: specs.EnvironmentSpec, torso: Torso, filters: Sequence[Sequence[int]] = ()) -> None:
    """Checks that a torso fits an environment's observations, without building it.

    Args:
      spec: the environment's spec, with single frames, not stacked.
      torso: see `make_torso`, as for `filters`.
      filters: the convolutions of the torso `conv`.

    Raises:
      CallboardError: as in `make_torso`, except that factories are not called; and if an image torso might take an
        image's channels for its height.
    """
    if not isinstance(torso, str):
        return
    if ":" in torso:
        _load(torso)
        return
    _check_torso_name(spec, torso)
    for leaf in tree.flatten(spec.observation):
        if torso != "mlp" and specs.is_image(leaf) and specs.has_channels_first(leaf.shape) is not False:
            raise CallboardError(
                f"torso {torso!r} needs images of height x width x channels, and the first axis of an observation "
                f"{tuple(leaf.shape)} may be its channels: move them last, or swap height and width where they are "
                "last, or use torso 'mlp'"
            )
    if torso == "nature":
        check_nature_images(spec.observation)
    if filters and not _has_images(spec):
        raise CallboardError(f"filters are for images, but the observation is {specs.describe(spec.observation)}")
    check_filters(spec.observation, filters)


class _Parts(NamedTuple):
    """Settings of the parts of a network before its head."""

    spec: specs.EnvironmentSpec
    torso: Torso
    core: str
    hidden_sizes: Sequence[int]
    activation: Any
    lstm_size: int
    image: tuple[Sequence[Sequence[int]], int | None, bool, Precision]
    """Filters, image features, layer norm and precision, see `make_torso`."""
    core_options: Mapping[str, Any]

    def body(self, normalizer: RunningNormalizer | None = None, unseen: str | None = None) -> dict[str, Any]:
        """Makes the parts of a network before its head, which do not see a part `unseen`, as arguments of `Network`."""
        spec, seen = self.spec, normalizer if unseen is None else WithoutPart(self.spec.observation, unseen, normalizer)
        if normalizer is not None:
            spec = spec._replace(observation=RunningNormalizer.normalized_spec(spec.observation))
        if unseen is not None:
            spec = specs.without_part(spec, unseen)
        return {
            "normalizer": seen,
            "torso": make_torso(spec, self.torso, self.hidden_sizes, self.activation, *self.image),
            "core": make_core(self.core, self.lstm_size, self.core_options),
        }


def _policy_and_value(
    parts: _Parts,
    make_head: Callable[[bool], Any],
    shared: bool,
    popart: PopArtSettings,
    value_layers: tuple[Sequence[int], Any, bool],
    own_head: Callable[[], Any] | None,
    normalize_observations: bool,
    previous_inputs: bool = False,
    critic_state: str | None = None,
) -> Network:
    """Builds one network for policy and value if they are shared, else two; `value_layers` as those of `ValueHead`."""
    normalizer = RunningNormalizer(parts.spec.observation) if normalize_observations else None

    def make_value_head() -> ValueHead | PopArtValueHead:
        return make_popart_head(parts.spec, popart, *value_layers) if popart.enabled else ValueHead(*value_layers)

    if shared:
        if own_head is not None:
            head = own_head()
        else:
            head = PolicyWithPopArt(make_head(False), make_value_head()) if popart.enabled else make_head(True)
        return Network(parts.spec, **parts.body(normalizer), head=head, previous_inputs=previous_inputs)
    if isinstance(parts.torso, tf.keras.layers.Layer):
        raise CallboardError("separate networks need a torso each: give a factory of torsos, not one layer")
    policy = Network(
        parts.spec, **parts.body(normalizer, critic_state), head=make_head(False), previous_inputs=previous_inputs
    )
    value = Network(parts.spec, **parts.body(normalizer), head=make_value_head(), previous_inputs=previous_inputs)
    return SeparateNetworks(policy, value)


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


def _made_by_user(factory: Callable[..., Any], spec: specs.EnvironmentSpec, name: str) -> tf.keras.layers.Layer:
    torso = factory(spec)
    if not isinstance(torso, tf.keras.layers.Layer):
        raise CallboardError(f"torso {name!r} must return a Keras layer or model, not {type(torso).__name__}")
    return torso


def _load(path: str) -> Callable[..., Any]:
    """Imports the factory `package.module:factory`."""
    factory = import_object("torso", path)
    if not callable(factory):
        raise CallboardError(f"torso {path!r} is not a function but of type {type(factory).__name__}")
    return factory
