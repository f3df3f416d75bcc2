"""Parts of SAC's networks for discrete actions: a categorical policy and critics of all actions."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tree

from ... import specs
from ...data import Nest
from ..actions.legal_actions import mask_illegal
from ..distributions import Categorical
from ..heads.heads import MLPHead
from ..torsos.dense import Normalization
from .actor_critic import CriticHeads


class CategoricalHead(tf.Module):
    """A policy over discrete actions, which is close to uniform at first."""

    takes_legal = True

    def __init__(
        self,
        num_actions: int,
        hidden_sizes: Sequence[int] = (),
        activation: Any = "relu",
        layer_norm: Normalization = False,
        name: str | None = None,
    ) -> None:
        """Creates a head for `num_actions` actions; see `heads.MLPHead`."""
        super().__init__(name)
        self._logits = MLPHead(num_actions, hidden_sizes, activation, gain=0.01, layer_norm=layer_norm)

    def __call__(self, features: tf.Tensor, legal: tf.Tensor | None = None) -> Categorical:
        """Maps features `[N, F]` and which actions are legal, bool `[N, A]`, to a distribution over A actions."""
        return Categorical(mask_illegal(self._logits(features), legal))


class DiscreteCritics(CriticHeads):
    """Critics of all actions that share nothing but the torso (Christodoulou 2019, section 4)."""

    def __init__(
        self, spec: specs.EnvironmentSpec, num_actions: int, torso: tf.keras.layers.Layer, **of_heads: Any
    ) -> None:
        """Builds all variables for `num_actions` actions; for the other arguments see `actor_critic.CriticHeads`."""
        super().__init__(torso, num_actions, **of_heads)
        self(tree.map_structure(tf.constant, specs.zeros(spec.observation, 1)))

    def __call__(self, observation: Nest) -> tf.Tensor:
        """Maps an observation nest `[N, ...]` to values `[K, N, A]`."""
        return self._heads(self._torso(observation))
