"""Networks for SAC: a policy over numbers or discrete actions, critics and target critics."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tree

from ... import specs
from ...data import Nest
from ..actions.action_bounds import ActionBounds
from ..actions.legal_actions import mask_illegal
from ..distributions import Categorical
from ..heads.heads import MLPHead, ParallelHeads
from ..heads.own_heads import NO_OPTIONS, OwnHeads
from ..network import Network
from ..network_settings import CriticSettings
from ..normalization import RunningNormalizer
from ..own_parts import BUILT_WITH
from ..target_update import copy_weights
from ..torsos.dense import LINEAR, Layers
from ..torsos.encoders import Encoders


class ActorCriticParts:
    """Parts of the networks of a policy and its critics, from the settings `ActorCriticSettings`.

    Args:
      spec: the environment's spec.
      hidden_sizes: hidden layer sizes of the policy, which takes the torso's features, and of each critic, which takes
        the features and the numbers of the action.
      activation: activation of the hidden layers.
      layer_norm: see `dense.Layers`.
      block: `plain` or `simba`, for hidden layers as in `dense.Layers`.
      head: `package.module:factory` of another head of the policy, see `own_heads.OwnHeads`.
      head_options: its options.
      critic_head: `package.module:factory` of another head of the critics, likewise.
      critic_head_options: its options.
      **of_torso: further arguments of `encoders.Encoders`; each network gets a separate torso.
    """

    def __init__(
        self,
        spec: specs.EnvironmentSpec,
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Any = "relu",
        layer_norm: bool = False,
        block: str = "plain",
        head: str | None = None,
        head_options: Mapping[str, Any] = NO_OPTIONS,
        critic_head: str | None = None,
        critic_head_options: Mapping[str, Any] = NO_OPTIONS,
        **of_torso: Any,
    ):
        self.encoders = Encoders(spec, activation=activation, layer_norm=layer_norm, **of_torso)
        self.layers = Layers(hidden_sizes, activation, "simba" if block == "simba" else layer_norm)
        self.own = OwnHeads(head, head_options, critic_head, critic_head_options)


class CriticHeads(tf.Module):
    """A torso and MLPs on its features, the parts of K critics, which share nothing else.

    Args:
      torso: maps an observation nest `[N, ...]` to features `[N, F]`.
      outputs: number of outputs of each MLP.
      layers: hidden layers of each MLP, unless `critics` has others.
      make_head: makes what is in place of each MLP; takes the arguments of `heads.MLPHead`.  None for MLPs.
      critics: see `CriticSettings`.
      name: name of the module.
    """

    def __init__(
        self,
        torso: tf.keras.layers.Layer,
        outputs: int,
        layers: Layers = LINEAR,
        make_head: Callable[..., Any] | None = None,
        critics: CriticSettings = CriticSettings(),  # noqa: B008
        name: str | None = None,
    ):
        super().__init__(name)
        self._torso = torso
        if critics.hidden_sizes is not None:
            layers = layers._replace(sizes=critics.hidden_sizes)
        layers = layers._replace(normalization=layers.normalization or critics.layer_norm)
        self._critics: list[Any] = []
        self._parallel: ParallelHeads | None = None
        if make_head is None and (critics.number > 2 or critics.dropout or isinstance(layers.normalization, str)):
            self._parallel = ParallelHeads(critics.number, outputs, layers, critics.dropout)
        else:
            # Two MLPs as fast one by one, and checkpoints of earlier versions have them so.
            make = make_head or MLPHead
            self._critics = [make(outputs, layers) for _ in range(critics.number)]

    def _heads(self, features: tf.Tensor) -> tf.Tensor:
        """Maps features `[N, F]` to the outputs of all critics, `[K, N, outputs]`."""
        if self._parallel is not None:
            return self._parallel(features)
        return tf.stack([critic(features) for critic in self._critics])

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, without those of torso layers that the user has frozen."""
        heads = self._critics if self._parallel is None else [self._parallel]
        of_heads = [variable for head in heads for variable in head.trainable_variables]
        return (*self._torso.trainable_variables, *of_heads)


class Critics(CriticHeads):
    """Action-value critics that share nothing but the torso (Fujimoto et al. 2018, section 4.2)."""

    def __init__(
        self,
        spec: specs.EnvironmentSpec,
        action_size: int,
        torso: tf.keras.layers.Layer,
        critics: CriticSettings = CriticSettings(),  # noqa: B008
        **of_heads: Any,
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          action_size: D, the number of components of a unit action.
          torso: see `CriticHeads`.
          critics: see `CriticSettings`.
          **of_heads: other arguments of `CriticHeads`, such as `layers`; each critic takes features and action.
        """
        self._has_quantiles = critics.quantiles is not None
        super().__init__(torso, critics.quantiles or 1, critics=critics, **of_heads)
        self(
            tree.map_structure(tf.constant, specs.zeros(spec.observation, BUILT_WITH)),
            tf.zeros((BUILT_WITH, action_size)),
        )

    def __call__(self, observation: Nest, action: Any) -> tf.Tensor:
        """Maps an observation nest `[N, ...]` and unit actions `[N, D]` to values `[K, N]`; quantiles `[K, N, M]`."""
        features = self._torso(observation)
        outputs = self._heads(tf.concat([features, tf.cast(action, features.dtype)], axis=-1))
        return outputs if self._has_quantiles else tf.squeeze(outputs, axis=-1)


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
          critic: online critics, a module that returns values `[K, N]`.
          target_critic: target critics, with the same architecture but separate variables; None for none.
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
        self.begin_targets()

    @property
    def alpha(self) -> tf.Tensor:
        """The entropy temperature, a scalar."""
        return tf.exp(self.log_alpha)

    def begin_targets(self) -> None:
        """Copies the weights of the critics to their target, also once they are those of another run."""
        if self.target_critic is not None:
            copy_weights(self.critic, self.target_critic)


class CategoricalHead(tf.Module):
    """A policy over discrete actions, which is close to uniform at first."""

    takes_legal = True

    def __init__(self, num_actions: int, layers: Layers = LINEAR, name: str | None = None) -> None:
        super().__init__(name)
        self._logits = MLPHead(num_actions, layers, gain=0.01)

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
