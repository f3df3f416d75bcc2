"""The networks an agent uses unless it is told otherwise, by name."""

import difflib
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from .. import specs
from ..data import CallboardError
from .heads import DuellingQHead, PolicyValueHead, QHead
from .network import Network
from .normalization import RunningNormalizer
from .recurrent import Core, FeedForwardCore, LSTMCore
from .residual import ImpalaResNet
from .torsos import MLPTorso, NatureTorso, ObservationTorso, is_image

TORSOS = ("auto", "mlp", "nature", "impala")
CORES = ("none", "lstm")

Torso = str | Callable[..., Any]
"""A name of `TORSOS`, `package.module:factory`, a factory, or a Keras layer or model.

A factory takes the `specs.EnvironmentSpec` and gives a `tf.keras.layers.Layer` or `tf.keras.Model`.
"""


def policy_value_network(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    core: str = "none",
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Any = "tanh",
    lstm_size: int = 256,
    previous_inputs: bool = False,
    normalize_observations: bool = False,
) -> Network:
    """A network that gives `heads.PolicyValue` for discrete actions, with all variables built.

    Args:
      spec: the environment's spec.
      torso: see `make_torso`.
      core: `none` or `lstm`.
      hidden_sizes: of the MLP that sees vectors.
      activation: of that MLP.
      lstm_size: cells of the LSTM.
      previous_inputs: whether the core also sees the previous action and reward.
      normalize_observations: whether the network has a `normalization.RunningNormalizer`.

    Raises:
      CallboardError: if a name is wrong, or the action is not one discrete choice.
    """
    if not isinstance(spec.action, dm_specs.DiscreteArray):
        raise CallboardError(f"A categorical policy needs one discrete action, not {specs.describe(spec.action)}.")
    return Network(
        spec,
        torso=make_torso(spec, torso, hidden_sizes, activation),
        core=make_core(core, lstm_size),
        head=PolicyValueHead(spec.action.num_values),
        previous_inputs=previous_inputs,
        normalizer=RunningNormalizer(spec.observation) if normalize_observations else None,
    )


def q_network(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    core: str = "none",
    hidden_sizes: Sequence[int] = (128, 128),
    activation: Any = "relu",
    lstm_size: int = 256,
    duelling: bool = True,
    stream_size: int = 0,
    previous_inputs: bool = False,
) -> Network:
    """A network whose output is q, the values `[..., A]` of discrete actions, with all variables built.

    Args:
      spec: the environment's spec, with the shape of observations as the network sees them (frames stacked).
      torso: see `make_torso`.
      core: `none` or `lstm`.
      hidden_sizes: of the MLP that sees vectors.
      activation: of that MLP.
      lstm_size: cells of the LSTM.
      duelling: whether the head is `heads.DuellingQHead`, or plain.
      stream_size: units of a hidden layer in each stream of the head; 0 for none.
      previous_inputs: whether the core also sees the previous action and reward.

    Raises:
      CallboardError: if a name is wrong, or the action is not one discrete choice.
    """
    if not isinstance(spec.action, dm_specs.DiscreteArray):
        raise CallboardError(f"Q-learning needs one discrete action, not {specs.describe(spec.action)}.")
    return Network(
        spec,
        torso=make_torso(spec, torso, hidden_sizes, activation),
        core=make_core(core, lstm_size),
        head=(DuellingQHead if duelling else QHead)(spec.action.num_values, stream_size),
        previous_inputs=previous_inputs,
    )


def make_torso(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Any = "tanh",
) -> tf.keras.layers.Layer:
    """The torso of that name for the observations of an environment.

    Args:
      spec: the environment's spec.
      torso: `mlp` flattens and joins all observations.  `nature` (DQN) and `impala` (deep residual network) give each
        image a net of its own and the rest an MLP.  `auto` is `impala` where there are images, else `mlp`.
        Otherwise a `Torso` of the user's own.
      hidden_sizes: of the MLP.
      activation: of the MLP.

    Raises:
      CallboardError: if the name is wrong, or a factory gives something else than a Keras layer.
    """
    if isinstance(torso, tf.keras.layers.Layer):
        return torso
    if callable(torso):
        return _made_by_user(torso, spec, getattr(torso, "__name__", repr(torso)))
    if ":" in torso:
        return _made_by_user(_load(torso), spec, torso)
    _check_name("torso", torso, TORSOS, or_else=" or package.module:factory")

    def make_mlp(observation: Any) -> tf.keras.layers.Layer:
        return MLPTorso(observation, hidden_sizes, activation)

    has_images = any(is_image(leaf) for leaf in tree.flatten(spec.observation))
    if torso == "mlp" or (torso == "auto" and not has_images):
        return make_mlp(spec.observation)
    if not has_images:
        raise CallboardError(
            f"The torso {torso!r} is for images; the observation is {specs.describe(spec.observation)}: use 'mlp'."
        )
    return ObservationTorso(spec.observation, NatureTorso if torso == "nature" else ImpalaResNet, make_mlp)


def make_core(core: str = "none", lstm_size: int = 256) -> Core:
    """The core of that name, `none` or `lstm`.

    Raises:
      CallboardError: if the name is wrong.
    """
    _check_name("core", core, CORES)
    return LSTMCore(lstm_size) if core == "lstm" else FeedForwardCore()


def _made_by_user(factory: Callable[..., Any], spec: specs.EnvironmentSpec, name: str) -> tf.keras.layers.Layer:
    torso = factory(spec)
    if not isinstance(torso, tf.keras.layers.Layer):
        raise CallboardError(f"The torso {name!r} must give a Keras layer or model, not {type(torso).__name__}.")
    return torso


def _load(path: str) -> Callable[..., Any]:
    """The factory at `package.module:factory`."""
    module_name, _, factory_name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise CallboardError(f"The torso {path!r} cannot be imported: {error}.") from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise CallboardError(f"The module {module_name!r} has no {factory_name!r}{_nearest(factory_name, names)}.")
    return factory


def _check_name(kind: str, name: str, names: Sequence[str], or_else: str = "") -> None:
    if name not in names:
        known = ", ".join(names) + or_else
        raise CallboardError(f"There is no {kind} {name!r}{_nearest(name, names)}.  There are {known}.")


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
