"""Networks for TD3, D4PG and DMPO: a policy and a critic, and a target of each."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tree

from ... import specs
from ...data import Nest
from ..actions.action_bounds import ActionBounds
from ..heads.heads import MLPHead
from ..network import Network
from ..normalization import RunningNormalizer
from ..own_parts import BUILT_WITH
from ..recurrent import FeedForwardCore
from ..target_update import copy_weights, copy_weights_every
from ..torsos.dense import LINEAR, Layers
from .actor_critic import ActorCriticParts, Critics

_INITIAL_GAIN = 0.01
"""Gain of last layers: the first actions are near the middle of their range, where tanh has a slope."""


class UnitActionHead(tf.Module):
    """A deterministic policy over unit actions: an MLP with tanh at its end."""

    def __init__(self, action_size: int, layers: Layers = LINEAR, name: str | None = None) -> None:
        super().__init__(name)
        self._action = MLPHead(action_size, layers, gain=_INITIAL_GAIN)

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
        layers: Layers = LINEAR,
        atoms: int = 51,
        make_head: Callable[..., Any] = MLPHead,
        name: str | None = None,
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          action_size: D, the number of components of a unit action.
          torso: maps an observation nest `[N, ...]` to features `[N, F]`.
          layers: hidden layers of the critic, which takes the features and the action.
          atoms: number of values that the distribution is over.
          make_head: makes the critic after the torso; takes the arguments of `heads.MLPHead`.
          name: name of the module.
        """
        super().__init__(name)
        self._torso = torso
        # Initially all values are about equally likely.
        self._logits = make_head(atoms, layers, gain=_INITIAL_GAIN)
        self(
            tree.map_structure(tf.constant, specs.zeros(spec.observation, BUILT_WITH)),
            tf.zeros((BUILT_WITH, action_size)),
        )

    def __call__(self, observation: Nest, action: Any) -> tf.Tensor:
        """Maps an observation nest `[N, ...]` and unit actions `[N, D]` to logits `[N, atoms]`."""
        features = self._torso(observation)
        return self._logits(tf.concat([features, tf.cast(action, features.dtype)], axis=-1))

    @property
    def atom_layers(self) -> Sequence[tf.keras.layers.Layer]:
        """The linear layer of the logits, see `moved_atoms.move_atoms`; none with a head of the user's own."""
        return [self._logits.output_layer] if isinstance(self._logits, MLPHead) else []

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, without those of torso layers that the user has frozen."""
        return (*self._torso.trainable_variables, *self._logits.trainable_variables)


class DeterministicActorCritic(tf.Module):
    """All networks of TD3 (Fujimoto et al. 2018, algorithm 1), D4PG (Barth-Maron et al. 2018, algorithm 1) or DMPO."""

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

    def copy_to_targets_every(self, period: int, steps: tf.Tensor) -> None:
        """Copies the weights of policy and critic to their targets where `steps` is a multiple of `period`."""
        copy_weights_every(period, steps, self.critic, self.target_critic)
        copy_weights_every(period, steps, self.policy, self.target_policy)


def deterministic_actor_critic(
    spec: specs.EnvironmentSpec,
    make_critic: Callable[..., tf.Module] = Critics,
    make_head: Callable[..., tf.Module] = UnitActionHead,
    outputs: type | None = None,
    **of_parts: Any,
) -> DeterministicActorCritic:
    """Builds the networks of TD3, D4PG or DMPO, including all variables.

    Args:
      spec: the environment's spec.
      make_critic: takes the spec, the number of action components, a torso, and `layers` by name.
      make_head: takes the number of action components and layers; its outputs are those of the policy.
      outputs: class of the policy's outputs, with `mean` and `log_std`; None for unit actions.
      **of_parts: further arguments of `actor_critic.ActorCriticParts`.

    Raises:
      CallboardError: if the action is not a single float array with finite bounds, or a name is unknown.
    """
    parts = ActorCriticParts(spec, **of_parts)
    encoders, own = parts.encoders, parts.own
    bounds = ActionBounds(spec.action)
    size = (bounds.size,)
    check = own.policy_check({"": size} if outputs is None else {"mean": size, "log_std": size}, outputs)

    def policy() -> Network:
        made = own.policy(spec, lambda: make_head(bounds.size, parts.layers))
        return Network(spec, encoders.make(), FeedForwardCore(), made, check_outputs=check)

    def critic() -> tf.Module:
        return make_critic(spec, bounds.size, encoders.make(), layers=parts.layers, **own.critic(spec))

    return DeterministicActorCritic(policy(), policy(), critic(), critic(), bounds, encoders.normalizer)
