"""Networks for SAC: a squashed Gaussian policy, twin critics and target critics."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ... import specs
from ...data import Nest
from ..actions.action_bounds import ActionBounds
from ..heads.heads import MLPHead
from ..network import Network
from ..normalization import RunningNormalizer
from ..target_update import copy_weights


class TwinQ(NamedTuple):
    """Two critics' values `[N]` of the same actions."""

    q1: Any
    q2: Any


class TwinHeads(tf.Module):
    """A torso and two MLPs on its features, the parts of a pair of critics, which share nothing else.

    Args:
      torso: maps an observation nest `[N, ...]` to features `[N, F]`.
      outputs: number of outputs of each MLP.
      hidden_sizes: hidden layer sizes of each MLP.
      activation: activation of the hidden layers.
      layer_norm: whether the hidden layers are normalized, as in `dense.hidden_layers`.
      name: name of the module.
      make_head: makes what is in place of each MLP; takes the arguments of `heads.MLPHead`.
    """

    def __init__(
        self,
        torso: tf.keras.layers.Layer,
        outputs: int,
        hidden_sizes: Sequence[int],
        activation: Any,
        layer_norm: bool,
        name: str | None = None,
        make_head: Callable[..., Any] = MLPHead,
    ):
        super().__init__(name)
        self._torso = torso
        self._critics = [make_head(outputs, hidden_sizes, activation, layer_norm=layer_norm) for _ in range(2)]

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, without those of torso layers that the user has frozen."""
        heads = [variable for critic in self._critics for variable in critic.trainable_variables]
        return (*self._torso.trainable_variables, *heads)


class TwinCritic(TwinHeads):
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
        make_head: Callable[..., Any] = MLPHead,
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          action_size: D, the number of components of a unit action.
          torso: see `TwinHeads`.
          hidden_sizes: hidden layer sizes of each critic, which takes the features and the action.
          activation: see `TwinHeads`.
          layer_norm: see `TwinHeads`.
          name: name of the module.
          make_head: see `TwinHeads`.
        """
        super().__init__(torso, 1, hidden_sizes, activation, layer_norm, name, make_head)
        self(tree.map_structure(tf.constant, specs.zeros(spec.observation, 1)), tf.zeros((1, action_size)))

    def __call__(self, observation: Nest, action: Any) -> TwinQ:
        """Maps an observation nest `[N, ...]` and unit actions `[N, D]` to values `[N]`."""
        features = self._torso(observation)
        inputs = tf.concat([features, tf.cast(action, features.dtype)], axis=-1)
        return TwinQ(*(tf.squeeze(critic(inputs), axis=-1) for critic in self._critics))


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
