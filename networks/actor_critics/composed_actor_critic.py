"""Parts of SAC's networks for composed actions: discrete choices, and numbers with finite bounds."""

from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ... import specs
from ...data import Nest
from ..actions.action_parts import ActionParts
from ..actions.legal_actions import mask_illegal
from ..distributions import Categorical
from ..heads.heads import SquashedGaussianHead
from ..network import Network
from ..normalization import RunningNormalizer
from ..torsos.dense import LINEAR, Layers
from .actor_critic import ActorCritic, CategoricalHead, CriticHeads


class SoftParts(NamedTuple):
    """A policy over composed actions, with leading axes `[...]`: its parts are independent, given the observation."""

    choices: Any
    """`distributions.Categorical` with logits `[..., K, M]`; `()` without choices."""
    numbers: Any
    """`distributions.SquashedGaussian` over `[..., D]`; `()` without numbers."""


class SoftPartsHead(tf.Module):
    """A policy over composed actions, whose choices are close to uniform at first."""

    takes_legal = True

    def __init__(self, parts: ActionParts, layers: Layers = LINEAR, name: str | None = None) -> None:
        super().__init__(name)
        self._parts = parts
        self._choices = CategoricalHead(int(parts.sizes.sum()), layers) if len(parts.sizes) else None
        self._numbers = SquashedGaussianHead(parts.numbers, layers) if parts.numbers else None

    def __call__(self, features: tf.Tensor, legal: tf.Tensor | None = None) -> SoftParts:
        """Maps features `[N, F]` and which values of all choices are legal, bool `[N, S]`, to a policy."""
        choices: Any = ()
        if self._choices is not None:
            logits = self._parts.choice_rows(self._choices(features).logits)
            choices = Categorical(mask_illegal(logits, self._parts.legal_rows(legal)))
        return SoftParts(choices, () if self._numbers is None else self._numbers(features))


class AdditiveCritics(CriticHeads):
    """Critics of composed actions, Q(x, u, c) = V(x, u) + Σ_k A_k(x, u, c_k), for numbers u and choices c.

    For one choice this is any function, as in Delalleau et al. 2019, "Discrete and continuous action representation for
    practical RL in video games"; for several, choices add up as in Tavakoli et al. 2018.  The expectation over a policy
    with independent choices thus follows from the probabilities of their values, without samples.
    """

    def __init__(
        self, spec: specs.EnvironmentSpec, parts: ActionParts, torso: tf.keras.layers.Layer, **of_heads: Any
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          parts: the parts of its actions.
          torso: see `actor_critic.CriticHeads`.
          **of_heads: other arguments of `actor_critic.CriticHeads`; each critic takes the features and the numbers.
        """
        super().__init__(torso, 1 + int(parts.sizes.sum()), **of_heads)
        self._parts = parts
        count = len(parts.sizes)
        weight = tf.zeros((1, count, int(parts.sizes.max()))) if count else ()
        numbers = tf.zeros((1, parts.numbers)) if parts.numbers else ()
        self(tree.map_structure(tf.constant, specs.zeros(spec.observation, 1)), numbers, weight)

    def __call__(self, observation: Nest, numbers: Any, weight: Any) -> tf.Tensor:
        """Maps observations, unit numbers and the choices' probabilities to values, the means over the choices.

        Args:
          observation: nest of `[N, ...]`.
          numbers: `[N, D]`, in [-1, 1]; `()` without numbers.
          weight: `[N, K, M]`, probabilities of the values of each choice, or choices as one-hot rows; `()` without.

        Returns:
          Values `[K, N]`.
        """
        features = self._torso(observation)
        if not isinstance(numbers, tuple):
            features = tf.concat([features, tf.cast(numbers, features.dtype)], axis=-1)
        return self._value(self._heads(features), weight)

    def _value(self, outputs: tf.Tensor, weight: Any) -> tf.Tensor:
        value = outputs[..., 0]
        if isinstance(weight, tuple):
            return value
        advantage = self._parts.choice_rows(outputs[..., 1:])
        return value + tf.reduce_sum(tf.cast(weight, advantage.dtype) * advantage, axis=(-2, -1))


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
        critic: AdditiveCritics,
        target_critic: AdditiveCritics | None,
        temperature: float,
        normalizer: RunningNormalizer | None = None,
    ):
        super().__init__(policy, critic, target_critic, None, temperature, normalizer)
        self.parts = parts
