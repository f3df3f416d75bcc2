"""Default networks, built from the names of torsos and cores."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from .. import specs
from ..errors import CallboardError, unknown
from ..named_objects import import_object
from .action_bounds import ActionBounds
from .heads import DistributionalQHead, DuelingQHead, GaussianValueHead, PolicyValueHead, QHead
from .network import Network
from .normalization import RunningNormalizer
from .recurrent import Core, FeedForwardCore, LSTMCore
from .residual import RESNET_DEPTHS, ImpalaResNet, ResNet
from .torsos import MLPTorso, NatureTorso, ObservationTorso, check_nature_images

TORSOS = ("auto", "mlp", "nature", "impala", *(f"resnet{depth}" for depth in RESNET_DEPTHS))
CORES = ("none", "lstm")

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
) -> Network:
    """Builds a network for discrete actions that outputs `heads.PolicyValue`, including all variables.

    Args:
      spec: the environment's spec.
      torso: see `make_torso`.
      core: `none` or `lstm`.
      hidden_sizes: layer sizes of the MLP for vector observations.
      activation: activation of that MLP and of the head.
      lstm_size: cells of the LSTM.
      previous_inputs: whether the core also takes the previous action and reward.
      normalize_observations: whether the network has a `normalization.RunningNormalizer`.
      head_sizes: sizes of separate hidden layers for policy and value, after the core.

    Raises:
      CallboardError: if a name is unknown, or the action is not a single discrete choice.
    """
    if not isinstance(spec.action, dm_specs.DiscreteArray):
        raise CallboardError(f"a categorical policy needs one discrete action, not {specs.describe(spec.action)}")
    body = _make_body(spec, torso, core, hidden_sizes, activation, lstm_size, normalize_observations)
    head = PolicyValueHead(spec.action.num_values, head_sizes, activation)
    return Network(spec, **body, head=head, previous_inputs=previous_inputs)


def gaussian_value_network(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    core: str = "none",
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Any = "tanh",
    lstm_size: int = 256,
    normalize_observations: bool = False,
    head_sizes: Sequence[int] = (),
    initial_log_std: float = 0.0,
    std_from_features: bool = False,
) -> Network:
    """Builds a network for continuous actions that outputs `heads.GaussianValue`, including all variables.

    Args:
      spec: the environment's spec.
      torso: see `make_torso`.
      core: `none` or `lstm`.
      hidden_sizes: layer sizes of the MLP for vector observations.
      activation: activation of all MLPs.
      lstm_size: cells of the LSTM.
      normalize_observations: whether the network has a `normalization.RunningNormalizer`.
      head_sizes: sizes of separate hidden layers for policy and value, after the core.
      initial_log_std: initial logarithm of the policy's standard deviation.
      std_from_features: whether the standard deviation depends on the observation.

    Raises:
      CallboardError: if a name is unknown, or the action is not a single float array with bounds.
    """
    action_size = ActionBounds(spec.action, unbounded=True).size
    body = _make_body(spec, torso, core, hidden_sizes, activation, lstm_size, normalize_observations)
    head = GaussianValueHead(action_size, head_sizes, activation, initial_log_std, std_from_features)
    return Network(spec, **body, head=head)


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
) -> Network:
    """Builds a network for discrete actions that outputs action values `[..., A]`, including all variables.

    Args:
      spec: the environment's spec, with observations as the network takes them (frames stacked).
      torso: see `make_torso`.
      core: `none` or `lstm`.
      hidden_sizes: layer sizes of the MLP for vector observations.
      activation: activation of that MLP.
      lstm_size: cells of the LSTM.
      dueling: whether to use `heads.DuelingQHead` instead of `heads.QHead`.
      stream_size: units of the hidden layer in each stream of the head; 0 for none.
      previous_inputs: whether the core also takes the previous action and reward.
      atoms: numbers M of a distribution for each action, so that outputs are `[..., A, M]`; None for values alone.

    Raises:
      CallboardError: if a name is unknown, or the action is not a single discrete choice.
    """
    if not isinstance(spec.action, dm_specs.DiscreteArray):
        raise CallboardError(f"Q-learning needs one discrete action, not {specs.describe(spec.action)}")
    body = _make_body(spec, torso, core, hidden_sizes, activation, lstm_size)
    actions = spec.action.num_values
    if atoms is not None:
        head: Any = DistributionalQHead(actions, atoms, stream_size, dueling)
    else:
        head = (DuelingQHead if dueling else QHead)(actions, stream_size)
    return Network(spec, **body, head=head, previous_inputs=previous_inputs)


def make_torso(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Any = "tanh",
) -> tf.keras.layers.Layer:
    """Makes a torso for an environment's observations.

    Args:
      spec: the environment's spec.
      torso: `mlp` flattens and concatenates all observations.  `nature` (DQN), `impala` (deep residual network) and
        `resnet8` to `resnet56` (`residual.ResNet`) apply a separate network to each image and an MLP to the rest.
        `impala-xk`, for example `impala-x4`, and `resnet20-xk` have k times the channels.  `auto` is `impala` if there
        are images, else `mlp`.  Any other `Torso` is the user's own.
      hidden_sizes: layer sizes of the MLP.
      activation: activation of the MLP.

    Raises:
      CallboardError: if the name is unknown, images are too small for `nature`, or a factory returns something other
        than a Keras layer.
    """
    if isinstance(torso, tf.keras.layers.Layer):
        return torso
    if callable(torso):
        return _made_by_user(torso, spec, getattr(torso, "__name__", repr(torso)))
    if ":" in torso:
        return _made_by_user(_load(torso), spec, torso)
    _check_torso_name(spec, torso)
    if torso == "nature":
        check_nature_images(spec.observation)
    name, width = _name_and_width(torso)

    def make_mlp(observation: Any) -> tf.keras.layers.Layer:
        return MLPTorso(observation, hidden_sizes, activation)

    def make_image_torso() -> tf.keras.layers.Layer:
        if name == "nature":
            return NatureTorso()
        if name.startswith("resnet"):
            return ResNet(int(name.removeprefix("resnet")), width)
        return ImpalaResNet(width=width)

    if name == "mlp" or not _has_images(spec):
        return make_mlp(spec.observation)
    return ObservationTorso(spec.observation, make_image_torso, make_mlp)


def check_torso(spec: specs.EnvironmentSpec, torso: Torso) -> None:
    """Checks that a torso fits an environment's observations, without building it.

    Args:
      spec: the environment's spec, with single frames, not stacked.
      torso: see `make_torso`.

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


def make_core(core: str = "none", lstm_size: int = 256) -> Core:
    """Makes the core `none` or `lstm`.

    Raises:
      CallboardError: if the name is unknown.
    """
    if core not in CORES:
        raise unknown("core", core, CORES)
    return LSTMCore(lstm_size) if core == "lstm" else FeedForwardCore()


def _make_body(
    spec: specs.EnvironmentSpec,
    torso: Torso,
    core: str,
    hidden_sizes: Sequence[int],
    activation: Any,
    lstm_size: int,
    normalize_observations: bool = False,
) -> dict[str, Any]:
    """Makes the parts of a network before its head, as arguments of `Network`."""
    normalizer = None
    if normalize_observations:
        normalizer = RunningNormalizer(spec.observation)
        spec = spec._replace(observation=RunningNormalizer.normalized_spec(spec.observation))
    return {
        "normalizer": normalizer,
        "torso": make_torso(spec, torso, hidden_sizes, activation),
        "core": make_core(core, lstm_size),
    }


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
