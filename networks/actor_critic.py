"""Networks for SAC: a squashed Gaussian policy, twin critics and target critics."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from .. import specs
from ..data import Nest
from ..errors import CallboardError
from .action_bounds import ActionBounds
from .heads import MLPHead, SquashedGaussianHead
from .network import Network
from .normalization import RunningNormalizer
from .precision import Precision
from .recurrent import FeedForwardCore
from .target_update import copy_weights
from .torso_factory import Torso, make_torso
from .torsos import NormalizingTorso


class TwinQ(NamedTuple):
    """Two critics' values `[N]` of the same actions."""

    q1: Any
    q2: Any


class TwinCritic(tf.Module):
    """Two action-value critics that share nothing but the torso (Fujimoto et al. 2018, section 4.2)."""

    def __init__(
        self,
        spec: specs.EnvironmentSpec,
        action_size: int,
        torso: tf.keras.layers.Layer,
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Any = "relu",
        layer_norm: bool = False,
        name: str | None = None,
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          action_size: D, the number of components of a unit action.
          torso: maps an observation nest `[N, ...]` to features `[N, F]`.
          hidden_sizes: hidden layer sizes of each critic, which takes the features and the action.
          activation: activation of the hidden layers.
          layer_norm: whether the hidden layers are normalized, as in `dense.hidden_layers`.
          name: name of the module.
        """
        super().__init__(name)
        self._torso = torso
        self._critics = [MLPHead(1, hidden_sizes, activation, layer_norm=layer_norm) for _ in range(2)]
        self(tree.map_structure(tf.constant, specs.zeros(spec.observation, 1)), tf.zeros((1, action_size)))

    def __call__(self, observation: Nest, action: Any) -> TwinQ:
        """Maps an observation nest `[N, ...]` and unit actions `[N, D]` to values `[N]`."""
        features = self._torso(observation)
        inputs = tf.concat([features, tf.cast(action, features.dtype)], axis=-1)
        return TwinQ(*(tf.squeeze(critic(inputs), axis=-1) for critic in self._critics))

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, without those of torso layers that the user has frozen."""
        heads = [variable for critic in self._critics for variable in critic.trainable_variables]
        return (*self._torso.trainable_variables, *heads)


class ActorCritic(tf.Module):
    """All networks of SAC (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", algorithm 1)."""

    def __init__(
        self,
        policy: Network,
        critic: Any,
        target_critic: Any,
        bounds: ActionBounds | None,
        temperature: float = 1.0,
        normalizer: RunningNormalizer | None = None,
        name: str | None = None,
    ) -> None:
        """Stores the networks and copies the critic's weights to the target critic.

        Args:
          policy: outputs a `distributions.SquashedGaussian` over unit actions, or a `distributions.Categorical`.
          critic: online critics, a module that returns `TwinQ`.
          target_critic: target critics, with the same architecture but separate variables.
          bounds: maps unit actions to the environment's; None for discrete actions.
          temperature: initial value of alpha.
          normalizer: normalizes the observations of all networks, which contain it; None if they are not normalized.
          name: name of the module.
        """
        super().__init__(name)
        self.policy = policy
        self.critic = critic
        self.target_critic = target_critic
        self.normalizer = normalizer
        self.bounds = bounds
        self.log_alpha = tf.Variable(math.log(temperature), dtype=tf.keras.backend.floatx(), name="log_alpha")
        copy_weights(critic, target_critic)

    @property
    def alpha(self) -> tf.Tensor:
        """The entropy temperature, a scalar."""
        return tf.exp(self.log_alpha)


def make_encoder(
    spec: specs.EnvironmentSpec, normalizer: RunningNormalizer | None, torso: Torso, activation: Any, *image: Any
) -> tf.keras.layers.Layer:
    """Makes the torso of a policy or a critic, which passes vectors through unless they are normalized.

    Args:
      spec: the environment's spec.
      normalizer: normalizes observations before the torso; None leaves them unchanged.
      torso: see `torso_factory.make_torso`.
      activation: see `torso_factory.make_torso`.
      *image: its arguments after the activation.
    """
    if normalizer is None:
        return make_torso(spec, torso, (), activation, *image)
    normalized = spec._replace(observation=RunningNormalizer.normalized_spec(spec.observation))
    return NormalizingTorso(normalizer, make_torso(normalized, torso, (), activation, *image))


def actor_critic_networks(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    hidden_sizes: Sequence[int] = (256, 256),
    activation: Any = "relu",
    temperature: float = 1.0,
    layer_norm: bool = False,
    filters: Sequence[Sequence[int]] = (),
    image_features: int | None = None,
    precision: Precision = "float32",
    image_activation: Any = None,
    torsos: Mapping[str, Torso] = MappingProxyType({}),
    normalize_observations: bool = False,
) -> ActorCritic:
    """Builds the networks of SAC, including all variables.

    Args:
      spec: the environment's spec.
      torso: see `factory.make_torso`; policy, critics and target critics each get a separate one.  `auto` and `mlp`
        pass vectors through unchanged.
      hidden_sizes: hidden layer sizes of the policy, which takes the torso's features, and of each critic, which takes
        the features and the action.
      activation: activation of the hidden layers.
      temperature: initial value of alpha.
      layer_norm: see `dense.hidden_layers`.
      filters: see `factory.make_torso`, as for `image_features`.
      image_features: units of the layer after the convolutions.
      precision: see `factory.make_torso`.
      image_activation: see `factory.make_torso`, as for `torsos`.
      torsos: torsos of parts of the observation.
      normalize_observations: whether all networks share a `normalization.RunningNormalizer`.

    Raises:
      CallboardError: if the action is not a single float array with finite bounds, or a name is unknown.
    """
    if isinstance(torso, tf.keras.layers.Layer):
        raise CallboardError("The policy and the critics need a torso each: give a factory of torsos, not one layer.")
    bounds = ActionBounds(spec.action)

    image = (filters, image_features, layer_norm, precision, image_activation, torsos)
    normalizer = RunningNormalizer(spec.observation) if normalize_observations else None

    def encoder() -> tf.keras.layers.Layer:
        return make_encoder(spec, normalizer, torso, activation, *image)

    head = SquashedGaussianHead(bounds.size, hidden_sizes, activation, layer_norm=layer_norm)
    policy = Network(spec, encoder(), FeedForwardCore(), head)
    critic, target_critic = (
        TwinCritic(spec, bounds.size, encoder(), hidden_sizes, activation, layer_norm) for _ in range(2)
    )
    return ActorCritic(policy, critic, target_critic, bounds, temperature, normalizer)
