"""Networks for deterministic policies (TD3, D4PG): a policy and a critic, and a target of each."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf
import tree

from .. import specs
from ..data import Nest
from ..errors import CallboardError
from .action_bounds import ActionBounds
from .actor_critic import TwinCritic, make_encoder
from .heads import MLPHead
from .network import Network
from .normalization import RunningNormalizer
from .precision import Precision
from .recurrent import FeedForwardCore
from .target_update import copy_weights
from .torso_factory import Torso

_INITIAL_GAIN = 0.01
"""Gain of last layers: the first actions are near the middle of their range, where tanh has a slope."""


class UnitActionHead(tf.Module):
    """A deterministic policy over unit actions: an MLP with tanh at its end."""

    def __init__(
        self,
        action_size: int,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "relu",
        layer_norm: bool = False,
        name: str | None = None,
    ) -> None:
        """Creates a head for actions of `action_size` components."""
        super().__init__(name)
        self._action = MLPHead(action_size, hidden_sizes, activation, gain=_INITIAL_GAIN, layer_norm=layer_norm)

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Maps features `[N, F]` to unit actions `[N, D]` in [-1, 1]."""
        return tf.tanh(self._action(features))


class CategoricalCritic(tf.Module):
    """A critic that outputs a distribution of values (Barth-Maron et al. 2018, appendix A)."""

    def __init__(
        self,
        spec: specs.EnvironmentSpec,
        action_size: int,
        torso: tf.keras.layers.Layer,
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Any = "relu",
        layer_norm: bool = False,
        atoms: int = 51,
        name: str | None = None,
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          action_size: D, the number of components of a unit action.
          torso: maps an observation nest `[N, ...]` to features `[N, F]`.
          hidden_sizes: hidden layer sizes of the critic, which takes the features and the action.
          activation: activation of the hidden layers.
          layer_norm: whether the hidden layers are normalized, as in `dense.hidden_layers`.
          atoms: number of values that the distribution is over.
          name: name of the module.
        """
        super().__init__(name)
        self._torso = torso
        # Initially all values are about equally likely.
        self._logits = MLPHead(atoms, hidden_sizes, activation, gain=_INITIAL_GAIN, layer_norm=layer_norm)
        self(tree.map_structure(tf.constant, specs.zeros(spec.observation, 1)), tf.zeros((1, action_size)))

    def __call__(self, observation: Nest, action: Any) -> tf.Tensor:
        """Maps an observation nest `[N, ...]` and unit actions `[N, D]` to logits `[N, atoms]`."""
        features = self._torso(observation)
        return self._logits(tf.concat([features, tf.cast(action, features.dtype)], axis=-1))

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, without those of torso layers that the user has frozen."""
        return (*self._torso.trainable_variables, *self._logits.trainable_variables)


class DeterministicActorCritic(tf.Module):
    """All networks of TD3 (Fujimoto et al. 2018, algorithm 1) or D4PG (Barth-Maron et al. 2018, algorithm 1)."""

    def __init__(
        self,
        policy: Network,
        target_policy: Network,
        critic: Any,
        target_critic: Any,
        bounds: ActionBounds,
        normalizer: RunningNormalizer | None = None,
        name: str | None = None,
    ) -> None:
        """Stores the networks and copies the weights of policy and critic to their targets.

        Args:
          policy: outputs unit actions `[..., D]`, or a distribution of them.
          target_policy: its target, with the same architecture but separate variables.
          critic: a module that takes an observation nest `[N, ...]` and unit actions `[N, D]`.
          target_critic: its target.
          bounds: maps unit actions to the environment's.
          normalizer: normalizes the observations of all networks, which contain it; None if they are not normalized.
          name: name of the module.
        """
        super().__init__(name)
        self.policy = policy
        self.target_policy = target_policy
        self.critic = critic
        self.target_critic = target_critic
        self.bounds = bounds
        self.normalizer = normalizer
        self.begin_targets()

    def begin_targets(self) -> None:
        """Copies the weights of policy and critic to their targets, also once they are those of another run."""
        copy_weights(self.policy, self.target_policy)
        copy_weights(self.critic, self.target_critic)


def deterministic_actor_critic(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    hidden_sizes: Sequence[int] = (256, 256),
    activation: Any = "relu",
    layer_norm: bool = False,
    filters: Sequence[Sequence[int]] = (),
    image_features: int | None = None,
    precision: Precision = "float32",
    image_activation: Any = None,
    torsos: Mapping[str, Torso] = MappingProxyType({}),
    normalize_observations: bool = False,
    make_critic: Callable[..., tf.Module] = TwinCritic,
    make_head: Callable[..., tf.Module] = UnitActionHead,
) -> DeterministicActorCritic:
    """Builds the networks of TD3, D4PG or DMPO, including all variables.

    Args:
      spec: the environment's spec.
      torso: see `factory.make_torso`; each network gets a separate one.  `auto` and `mlp` pass vectors through
        unchanged.
      hidden_sizes: hidden layer sizes of the policy, which takes the torso's features, and of each critic, which takes
        the features and the action.
      activation: activation of the hidden layers.
      layer_norm: see `dense.hidden_layers`.
      filters: see `factory.make_torso`, as for `image_features`.
      image_features: units of the layer after the convolutions.
      precision: see `factory.make_torso`.
      image_activation: see `factory.make_torso`, as for `torsos`.
      torsos: torsos of parts of the observation.
      normalize_observations: whether all networks share a `normalization.RunningNormalizer`.
      make_critic: takes the spec, the number of action components, a torso, hidden sizes, activation and `layer_norm`.
      make_head: takes the number of action components, hidden sizes, activation and `layer_norm`; its outputs are those
        of the policy.

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

    def policy() -> Network:
        head = make_head(bounds.size, hidden_sizes, activation, layer_norm)
        return Network(spec, encoder(), FeedForwardCore(), head)

    def critic() -> tf.Module:
        return make_critic(spec, bounds.size, encoder(), hidden_sizes, activation, layer_norm)

    return DeterministicActorCritic(policy(), policy(), critic(), critic(), bounds, normalizer)
