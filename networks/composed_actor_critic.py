"""Networks for SAC over composed actions: discrete choices, and numbers with finite bounds."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from .. import specs
from ..data import Nest
from ..errors import CallboardError
from .action_parts import ActionParts
from .actor_critic import ActorCritic, TwinQ, make_encoder
from .discrete_actor_critic import CategoricalHead
from .distributions import Categorical
from .heads import MLPHead, SquashedGaussianHead
from .legal_actions import mask_illegal
from .network import Network
from .normalization import RunningNormalizer
from .precision import Precision
from .recurrent import FeedForwardCore
from .torso_factory import Torso


class SoftParts(NamedTuple):
    """A policy over composed actions, with leading axes `[...]`: its parts are independent, given the observation."""

    choices: Any
    """`distributions.Categorical` with logits `[..., K, M]`; `()` without choices."""
    numbers: Any
    """`distributions.SquashedGaussian` over `[..., D]`; `()` without numbers."""


class SoftPartsHead(tf.Module):
    """A policy over composed actions, whose choices are close to uniform at first."""

    takes_legal = True

    def __init__(
        self,
        parts: ActionParts,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "relu",
        layer_norm: bool = False,
        name: str | None = None,
    ) -> None:
        """Creates a head for the parts of an action; the other arguments are those of `heads.MLPHead`."""
        super().__init__(name)
        layers = {"hidden_sizes": hidden_sizes, "activation": activation, "layer_norm": layer_norm}
        self._parts = parts
        self._choices = CategoricalHead(int(parts.sizes.sum()), **layers) if len(parts.sizes) else None
        self._numbers = SquashedGaussianHead(parts.numbers, **layers) if parts.numbers else None

    def __call__(self, features: tf.Tensor, legal: tf.Tensor | None = None) -> SoftParts:
        """Maps features `[N, F]` and which values of all choices are legal, bool `[N, S]`, to a policy."""
        choices: Any = ()
        if self._choices is not None:
            logits = self._parts.choice_rows(self._choices(features).logits)
            choices = Categorical(mask_illegal(logits, self._parts.legal_rows(legal)))
        return SoftParts(choices, () if self._numbers is None else self._numbers(features))


class AdditiveTwinCritic(tf.Module):
    """Two critics of composed actions, Q(x, u, c) = V(x, u) + Σ_k A_k(x, u, c_k), for numbers u and choices c.

    For one choice this is any function, as in Delalleau et al. 2019, "Discrete and continuous action representation for
    practical RL in video games"; for several, choices add up as in Tavakoli et al. 2018.  The expectation over a policy
    with independent choices thus follows from the probabilities of their values, without samples.
    """

    def __init__(
        self,
        spec: specs.EnvironmentSpec,
        parts: ActionParts,
        torso: tf.keras.layers.Layer,
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Any = "relu",
        layer_norm: bool = False,
        name: str | None = None,
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          parts: the parts of its actions.
          torso: maps an observation nest `[N, ...]` to features `[N, F]`.
          hidden_sizes: hidden layer sizes of each critic, which takes the features and the numbers.
          activation: activation of the hidden layers.
          layer_norm: whether the hidden layers are normalized, as in `dense.hidden_layers`.
          name: name of the module.
        """
        super().__init__(name)
        self._torso = torso
        self._parts = parts
        outputs = 1 + int(parts.sizes.sum())
        self._critics = [MLPHead(outputs, hidden_sizes, activation, layer_norm=layer_norm) for _ in range(2)]
        count = len(parts.sizes)
        weight = tf.zeros((1, count, int(parts.sizes.max()))) if count else ()
        numbers = tf.zeros((1, parts.numbers)) if parts.numbers else ()
        self(tree.map_structure(tf.constant, specs.zeros(spec.observation, 1)), numbers, weight)

    def __call__(self, observation: Nest, numbers: Any, weight: Any) -> TwinQ:
        """Maps observations, unit numbers and the choices' probabilities to values, the means over the choices.

        Args:
          observation: nest of `[N, ...]`.
          numbers: `[N, D]`, in [-1, 1]; `()` without numbers.
          weight: `[N, K, M]`, probabilities of the values of each choice, or choices as one-hot rows; `()` without.

        Returns:
          Values `[N]`.
        """
        features = self._torso(observation)
        if not isinstance(numbers, tuple):
            features = tf.concat([features, tf.cast(numbers, features.dtype)], axis=-1)
        return TwinQ(*(self._value(critic(features), weight) for critic in self._critics))

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, without those of torso layers that the user has frozen."""
        heads = [variable for critic in self._critics for variable in critic.trainable_variables]
        return (*self._torso.trainable_variables, *heads)

    def _value(self, outputs: tf.Tensor, weight: Any) -> tf.Tensor:
        value = outputs[:, 0]
        if isinstance(weight, tuple):
            return value
        advantage = self._parts.choice_rows(outputs[:, 1:])
        return value + tf.reduce_sum(tf.cast(weight, advantage.dtype) * advantage, axis=(1, 2))


class ComposedActorCritic(ActorCritic):
    """All networks of SAC over composed actions.

    Args:
      parts: the parts of the action.
      policy: outputs `SoftParts`.
      critic: online critics.
      target_critic: target critics, with the same architecture but separate variables.
      temperature: initial value of alpha.
      normalizer: normalizes the observations of all networks; None if they are not normalized.
    """

    def __init__(
        self,
        parts: ActionParts,
        policy: Network,
        critic: AdditiveTwinCritic,
        target_critic: AdditiveTwinCritic,
        temperature: float,
        normalizer: RunningNormalizer | None = None,
    ):
        super().__init__(policy, critic, target_critic, None, temperature, normalizer)
        self.parts = parts


def composed_actor_critic_networks(
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
) -> ComposedActorCritic:
    """Builds the networks of SAC for a composed action, including all variables.

    Args:
      spec: the environment's spec.
      torso: see `actor_critic.actor_critic_networks`, as for all other arguments.
      hidden_sizes: hidden layer sizes of each kind of parts of the policy, and of each critic.
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
      CallboardError: if a part of the action is neither discrete nor of floats with finite bounds, or a name is
        unknown.
    """
    if isinstance(torso, tf.keras.layers.Layer):
        raise CallboardError("The policy and the critics need a torso each: give a factory of torsos, not one layer.")
    parts = ActionParts(spec.action, unbounded=False)

    image = (filters, image_features, layer_norm, precision, image_activation, torsos)
    normalizer = RunningNormalizer(spec.observation) if normalize_observations else None

    def encoder() -> tf.keras.layers.Layer:
        return make_encoder(spec, normalizer, torso, activation, *image)

    policy = Network(spec, encoder(), FeedForwardCore(), SoftPartsHead(parts, hidden_sizes, activation, layer_norm))
    critic, target_critic = (
        AdditiveTwinCritic(spec, parts, encoder(), hidden_sizes, activation, layer_norm) for _ in range(2)
    )
    return ComposedActorCritic(parts, policy, critic, target_critic, temperature, normalizer)
