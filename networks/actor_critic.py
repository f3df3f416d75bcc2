"""The networks of an actor-critic with continuous actions: a Gaussian policy, twin critics and their targets."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from .. import specs
from ..data import CallboardError, Nest
from .action_bounds import ActionBounds
from .factory import Torso, make_torso
from .heads import MLPHead, SquashedGaussianHead
from .network import Network
from .recurrent import FeedForwardCore
from .target_update import copy_weights


class TwinQ(NamedTuple):
    """The values `[N]` of one action by two critics."""

    q1: Any
    q2: Any


class TwinCritic(tf.Module):
    """Two critics of observation and action that share only what the torso does (Fujimoto et al. 2018, section 4.2)."""

    def __init__(
        self,
        spec: specs.EnvironmentSpec,
        action_size: int,
        torso: tf.keras.layers.Layer,
        hidden_sizes: Sequence[int] = (256, 256),
        activation: Any = "relu",
        name: str | None = None,
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          action_size: D, components of a unit action.
          torso: observation nest `[N, ...]` -> features `[N, F]`.
          hidden_sizes: of each critic's layers on the features and the action.
          activation: of those layers.
          name: of the module.
        """
        super().__init__(name)
        self._torso = torso
        self._critics = [MLPHead(1, hidden_sizes, activation) for _ in range(2)]
        self(tree.map_structure(tf.constant, specs.zeros(spec.observation, 1)), tf.zeros((1, action_size)))

    def __call__(self, observation: Nest, action: Any) -> TwinQ:
        """Observation nest `[N, ...]` and unit action `[N, D]` -> values `[N]`."""
        features = self._torso(observation)
        inputs = tf.concat([features, tf.cast(action, features.dtype)], axis=-1)
        return TwinQ(*(tf.squeeze(critic(inputs), axis=-1) for critic in self._critics))

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """What the learner trains.  Layers of the torso that the user has frozen are left out."""
        heads = [variable for critic in self._critics for variable in critic.trainable_variables]
        return (*self._torso.trainable_variables, *heads)


class ActorCritic(tf.Module):
    """What SAC learns (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", algorithm 1)."""

    def __init__(
        self,
        policy: Network,
        critic: TwinCritic,
        target_critic: TwinCritic,
        bounds: ActionBounds,
        temperature: float = 1.0,
        name: str | None = None,
    ) -> None:
        """Sets the target critic equal to the critic.

        Args:
          policy: gives `distributions.SquashedGaussian` over unit actions.
          critic: the critics that learn.
          target_critic: of the same making, with variables of its own.
          bounds: from unit actions to the environment's.
          temperature: alpha at the beginning.
          name: of the module.
        """
        super().__init__(name)
        self.policy = policy
        self.critic = critic
        self.target_critic = target_critic
        self.bounds = bounds
        self.log_alpha = tf.Variable(math.log(temperature), dtype=tf.keras.backend.floatx(), name="log_alpha")
        copy_weights(critic, target_critic)

    @property
    def alpha(self) -> tf.Tensor:
        """The temperature, a scalar."""
        return tf.exp(self.log_alpha)


def actor_critic_networks(
    spec: specs.EnvironmentSpec,
    torso: Torso = "auto",
    hidden_sizes: Sequence[int] = (256, 256),
    activation: Any = "relu",
    temperature: float = 1.0,
) -> ActorCritic:
    """Networks for continuous actions, with all variables built.

    Args:
      spec: the environment's spec.
      torso: see `defaults.make_torso`; the policy, the critics and the target critics get one each.  `auto` and `mlp`
        pass vectors on as they are.
      hidden_sizes: layers of the policy on the torso's features, and of each critic on the features and the action.
      activation: of those layers.
      temperature: alpha at the beginning.

    Raises:
      CallboardError: if the action is not one array of floats with finite bounds, or a name is wrong.
    """
    if isinstance(torso, tf.keras.layers.Layer):
        raise CallboardError("The policy and the critics need a torso each: give a factory of torsos, not one layer.")
    bounds = ActionBounds(spec.action)

    def encoder() -> tf.keras.layers.Layer:
        return make_torso(spec, torso, hidden_sizes=())

    policy = Network(spec, encoder(), FeedForwardCore(), SquashedGaussianHead(bounds.size, hidden_sizes, activation))
    critic, target_critic = (TwinCritic(spec, bounds.size, encoder(), hidden_sizes, activation) for _ in range(2))
    return ActorCritic(policy, critic, target_critic, bounds, temperature)
