"""Networks for SAC with discrete actions: a categorical policy, twin critics of all actions, and target critics."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from .. import specs
from ..data import Nest
from ..errors import CallboardError
from .actor_critic import ActorCritic, TwinQ, make_encoder
from .distributions import Categorical
from .heads import MLPHead
from .legal_actions import mask_illegal
from .network import Network
from .normalization import RunningNormalizer
from .precision import Precision
from .recurrent import FeedForwardCore
from .torso_factory import Torso


class CategoricalHead(tf.Module):
    """A policy over discrete actions, which is close to uniform at first."""

    takes_legal = True

    def __init__(
        self,
        num_actions: int,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "relu",
        layer_norm: bool = False,
        name: str | None = None,
    ) -> None:
        """Creates a head for `num_actions` actions; see `heads.MLPHead`."""
        super().__init__(name)
        self._logits = MLPHead(num_actions, hidden_sizes, activation, gain=0.01, layer_norm=layer_norm)

    def __call__(self, features: tf.Tensor, legal: tf.Tensor | None = None) -> Categorical:
        """Maps features `[N, F]` and which actions are legal, bool `[N, A]`, to a distribution over A actions."""
        return Categorical(mask_illegal(self._logits(features), legal))


class DiscreteTwinCritic(tf.Module):
    """Two critics of all actions that share nothing but the torso (Christodoulou 2019, section 4)."""

    def __init__(
        self,
        spec: specs.EnvironmentSpec,
        num_actions: int,
        torso: tf.keras.layers.Layer,
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Any = "relu",
        layer_norm: bool = False,
        name: str | None = None,
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          num_actions: A, the number of actions.
          torso: maps an observation nest `[N, ...]` to features `[N, F]`.
          hidden_sizes: hidden layer sizes of each critic, which takes the features.
          activation: activation of the hidden layers.
          layer_norm: whether the hidden layers are normalized, as in `dense.hidden_layers`.
          name: name of the module.
        """
        super().__init__(name)
        self._torso = torso
        self._critics = [MLPHead(num_actions, hidden_sizes, activation, layer_norm=layer_norm) for _ in range(2)]
        self(tree.map_structure(tf.constant, specs.zeros(spec.observation, 1)))

    def __call__(self, observation: Nest) -> TwinQ:
        """Maps an observation nest `[N, ...]` to values `[N, A]`."""
        features = self._torso(observation)
        return TwinQ(*(critic(features) for critic in self._critics))

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, without those of torso layers that the user has frozen."""
        heads = [variable for critic in self._critics for variable in critic.trainable_variables]
        return (*self._torso.trainable_variables, *heads)


def discrete_actor_critic_networks(
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
    """Builds the networks of SAC for one discrete action, including all variables.

    Args:
      spec: the environment's spec.
      torso: see `actor_critic.actor_critic_networks`, as for all other arguments.
      hidden_sizes: hidden layer sizes of the policy and of each critic, which take the torso's features.
      activation: activation of the hidden layers.
      temperature: initial value of alpha.
      layer_norm: see `dense.hidden_layers`.
      filters: see `factory.make_torso`, as for `image_features`.
      image_features: units of the layer after the convolutions.
      precision: see `factory.make_torso`.
      image_activation: see `factory.make_torso`, as for `torsos`.
      torsos: torsos of parts of the observation.
      normalize_observations: whether all networks share a `normalization.RunningNormalizer`.

    Returns:
      Networks without `bounds`, whose policy outputs a `distributions.Categorical`.

    Raises:
      CallboardError: if the action is not a single discrete choice, or a name is unknown.
    """
    if not isinstance(spec.action, dm_specs.DiscreteArray):
        raise CallboardError(f"a categorical policy needs one discrete action, not {specs.describe(spec.action)}")
    if isinstance(torso, tf.keras.layers.Layer):
        raise CallboardError("The policy and the critics need a torso each: give a factory of torsos, not one layer.")
    actions = spec.action.num_values

    image = (filters, image_features, layer_norm, precision, image_activation, torsos)
    normalizer = RunningNormalizer(spec.observation) if normalize_observations else None

    def encoder() -> tf.keras.layers.Layer:
        return make_encoder(spec, normalizer, torso, activation, *image)

    head = CategoricalHead(actions, hidden_sizes, activation, layer_norm)
    policy = Network(spec, encoder(), FeedForwardCore(), head)
    critic, target_critic = (
        DiscreteTwinCritic(spec, actions, encoder(), hidden_sizes, activation, layer_norm) for _ in range(2)
    )
    return ActorCritic(policy, critic, target_critic, None, temperature, normalizer)
