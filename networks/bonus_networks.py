"""Networks of exploration bonuses, which only learners have: random network distillation and curiosity."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from .. import specs
from ..data import Nest
from .actions.action_parts import ActionParts, one_hot_choices
from .actions.legal_actions import mask_illegal
from .heads.heads import MLPHead
from .network_settings import NetworkSettings
from .torsos.dense import Layers
from .torsos.torso_factory import make_torso


class ObservationNetwork(tf.Module):
    """A torso, hidden layers and a linear layer, for observations that are normalized.

    Args:
      spec: the spec of the environment, with normalized observations and without action masks.
      network: settings of the agent's network, whose torso it has, if that is one by name.
      hidden_sizes: sizes of the hidden layers.
      outputs: numbers in an output.
    """

    def __init__(
        self, spec: specs.EnvironmentSpec, network: NetworkSettings, hidden_sizes: Sequence[int], outputs: int
    ):
        super().__init__()
        self._torso = make_torso(
            spec,
            # One of the user's own may take nothing but the observations of the environment.
            "auto" if ":" in network.torso else network.torso,
            hidden_sizes=(),
            activation="relu",
            filters=network.filters,
            image_features=network.image_features,
            precision=network.precision,
            image_activation=network.image_activation,
        )
        self._head = MLPHead(outputs, Layers(hidden_sizes))
        self(tree.map_structure(tf.constant, specs.zeros(spec.observation, 1)))

    def __call__(self, observation: Nest) -> tf.Tensor:
        """Maps observations `[N, ...]` to outputs `[N, outputs]`."""
        return self._head(self._torso(observation, training=False))


class RandomDistillation(tf.Module):
    """A fixed random network, and one with another hidden layer that is trained to compute the same.

    Args:
      spec: see `ObservationNetwork`, as for the other arguments.
      features: outputs of both.
    """

    def __init__(
        self, spec: specs.EnvironmentSpec, network: NetworkSettings, hidden_sizes: Sequence[int], features: int
    ):
        super().__init__()
        self.target = ObservationNetwork(spec, network, hidden_sizes, features)
        self.predictor = ObservationNetwork(spec, network, (*hidden_sizes, *hidden_sizes[-1:]), features)

    @property
    def trained(self) -> Sequence[tf.Variable]:
        """The variables that are trained."""
        return self.predictor.trainable_variables


class Told(NamedTuple):
    """Actions as `Curiosity` tells them from observations, and as they were; `()` for what they do not have."""

    logits: Any
    """`[N, K, M]`, of the values of each choice, the lowest where a choice has fewer."""
    choices: Any
    """int32 `[N, K]`, those made."""
    unit_numbers: Any
    """`[N, D]`."""
    numbers: Any
    """`[N, D]`, those of the action taken, in [-1, 1] where they are bounded."""


class Curiosity(tf.Module):
    """Features of observations, a network that tells the action from two of them, and one that predicts the second.

    Args:
      spec: see `ObservationNetwork`, as for the other arguments.
      features: numbers in the features.
    """

    def __init__(
        self, spec: specs.EnvironmentSpec, network: NetworkSettings, hidden_sizes: Sequence[int], features: int
    ):
        super().__init__()
        self._parts = parts = ActionParts(spec.action)
        self._values = int(parts.sizes.sum())
        self._encoder = ObservationNetwork(spec, network, hidden_sizes, features)
        self._inverse = MLPHead(self._values + parts.numbers, Layers(hidden_sizes))
        self._forward = MLPHead(features, Layers(hidden_sizes))
        observation, action = tree.map_structure(tf.constant, specs.zeros((spec.observation, spec.action), 1))
        self(observation, action, observation)

    @property
    def trained(self) -> Sequence[tf.Variable]:
        """The variables that are trained."""
        return self.trainable_variables

    def __call__(self, observation: Nest, action: Nest, next_observation: Nest) -> tuple[tf.Tensor, tf.Tensor, Told]:
        """Returns the features `[N, F]` of the next observation as predicted and as they are, and the action as told.

        Args:
          observation: normalized, `[N, ...]`.
          action: the environment's, `[N, ...]`.
          next_observation: normalized, `[N, ...]`.
        """
        parts = self._parts
        features_t, features_tp1 = self._encoder(observation), self._encoder(next_observation)
        told = self._inverse(tf.concat([features_t, features_tp1], axis=-1))
        choices, numbers = parts.choices(action), parts.unit_numbers(action, features_t.dtype)
        taken, logits, unit_numbers = [features_t], (), ()
        if not isinstance(choices, tuple):
            rows = one_hot_choices(parts, choices, features_t.dtype)
            taken.append(tf.reshape(rows, (-1, rows.shape[-2] * rows.shape[-1])))
            logits = mask_illegal(parts.choice_rows(told[:, : self._values]), parts.legal_rows(None))
        if not isinstance(numbers, tuple):
            taken.append(numbers)
            unit_numbers = told[:, self._values :]
        predicted = self._forward(tf.concat(taken, axis=-1))
        return predicted, features_tp1, Told(logits, choices, unit_numbers, numbers)
