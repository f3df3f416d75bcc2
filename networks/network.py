"""A network is a torso, a core and a head: features of each observation, memory over time, outputs."""

from typing import Any, NamedTuple

import tensorflow as tf
import tree

from .. import specs
from ..data import CallboardError, Nest
from .flatten import flat_features
from .normalization import RunningNormalizer
from .recurrent import Core


class Inputs(NamedTuple):
    """What a network sees at a timestep.  Leading axes are `[B, ...]` for a step and `[T, B, ...]` for an unroll."""

    observation: Nest
    previous_action: Nest = None
    """The action that led to the observation, or None for networks that do not ask for it."""
    previous_reward: Any = None
    """The reward of that action, or None."""


class Network(tf.Module):
    """Torso, core and head, with all variables built by the constructor.

    The torso (any `tf.keras.layers.Layer` or `tf.keras.Model`) takes the observation nest `[N, ...]` and gives features
    `[N, F]`.  The core carries the state over time.  The head takes what the core gives, `[N, F']`, and returns any
    nest of tensors `[N, ...]`.

    A recurrent state belongs to the observation it is used with: where `first` is True the state is reset before the
    observation is used, and the previous action and reward, which belong to another episode, are taken as zeros.

    Variables are made in the strategy scope that surrounds the constructor.  Their values depend only on
    `tf.keras.utils.set_random_seed`, called before in the same thread.
    """

    def __init__(
        self,
        spec: specs.EnvironmentSpec,
        torso: Any,
        core: Core,
        head: Any,
        previous_inputs: bool = False,
        normalizer: RunningNormalizer | None = None,
        name: str | None = None,
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          torso: observation nest `[N, ...]` -> features `[N, F]`.
          core: one of the modules of `recurrent`.
          head: features `[N, F']` -> outputs, nest of `[N, ...]`.
          previous_inputs: whether `Inputs.previous_action` and `Inputs.previous_reward` are appended to the torso's
            features (actions as by `features.flat_features`).
          normalizer: of the observations that the torso is given; None leaves them as they are.
          name: of the module.

        Raises:
          CallboardError: if the torso does not give vectors.
        """
        super().__init__(name)
        self._torso = torso
        self._core = core
        self._head = head
        self._previous_inputs = previous_inputs
        self.normalizer = normalizer
        self._action_spec = spec.action
        self._build(spec)

    @property
    def state_spec(self) -> Nest:
        """Nest of `tf.TensorSpec` of the state, without the axis B."""
        return self._core.state_spec

    def initial_state(self, batch_size: Any) -> Nest:
        """The state at the start of an episode, leaves `[batch_size, ...]`; `()` for a feed-forward network."""
        return self._core.initial_state(batch_size)

    @tf.autograph.experimental.do_not_convert
    def step(self, inputs: Inputs, state: Nest, first: tf.Tensor, training: bool = False) -> tuple[Any, Nest]:
        """One timestep.

        Args:
          inputs: leaves `[B, ...]`.
          state: leaves `[B, ...]`.
          first: bool `[B]`, where the observation begins an episode.
          training: see `unroll`.

        Returns:
          Outputs, leaves `[B, ...]`, and the state that belongs to the next observation.
        """
        features, state = self._core.step(self._features(inputs, first, training), state, first)
        return self._head(features), state

    @tf.autograph.experimental.do_not_convert
    def unroll(self, inputs: Inputs, state: Nest, first: tf.Tensor, training: bool = False) -> tuple[Any, Nest]:
        """A sequence of timesteps: the same as `step` after `step`, but faster.

        Args:
          inputs: leaves `[T, B, ...]`.
          state: leaves `[B, ...]`, the state that belongs to the first observation.
          first: bool `[T, B]`, where an observation begins an episode.
          training: whether a learner differentiates what it gets.  Batch normalization in the torso then uses the
            batch's statistics and moves its averages towards them; those who act and those who are only asked for
            targets use the averages, which travel with the weights.

        Returns:
          Outputs, leaves `[T, B, ...]`, and the state that belongs to the observation after the last.
        """
        first = tf.convert_to_tensor(first)
        lengths = [tf.shape(first)[axis] if known is None else known for axis, known in enumerate(first.shape)]
        merged = Inputs(*(None if part is None else tree.map_structure(_merge_time, part) for part in inputs))
        features = _split_time(self._features(merged, _merge_time(first), training), lengths)
        features, state = self._core.unroll(features, state, first)
        outputs = self._head(_merge_time(features))
        return tree.map_structure(lambda output: _split_time(output, lengths), outputs), state

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """What the learner trains, in an order that does not change.  Layers that the user has frozen are left out."""
        parts = (self._torso, self._core, self._head)
        # A layer that two parts share must not be trained twice.
        unique = {id(variable): variable for part in parts for variable in part.trainable_variables}
        return tuple(unique.values())

    def regularization_loss(self) -> Any:
        """A replica's part of what the torso's layers add to the loss, such as L2: a scalar, 0 for most torsos."""
        # The loss is the sum over the replicas.
        return sum(self._torso.losses) / tf.distribute.get_strategy().num_replicas_in_sync

    def _features(self, inputs: Inputs, first: tf.Tensor, training: bool = False) -> tf.Tensor:
        observation = inputs.observation if self.normalizer is None else self.normalizer(inputs.observation)
        features = self._torso(observation, training=training)
        if not self._previous_inputs:
            return features
        if inputs.previous_action is None or inputs.previous_reward is None:
            raise ValueError("This network asks for the previous action and reward; the inputs hold none.")
        action = flat_features(self._action_spec, inputs.previous_action, features.dtype)
        reward = tf.cast(inputs.previous_reward, features.dtype)
        previous = tf.concat([action, reward[:, tf.newaxis]], axis=-1)
        previous = tf.where(first[:, tf.newaxis], tf.zeros_like(previous), previous)
        return tf.concat([features, previous], axis=-1)

    def _build(self, spec: specs.EnvironmentSpec) -> None:
        observation, action = tree.map_structure(tf.constant, specs.zeros((spec.observation, spec.action), 1))
        inputs = Inputs(observation, action, tf.zeros((1,)))
        first = tf.ones((1,), tf.bool)
        features = self._features(inputs, first)
        if features.shape.rank != 2 or features.shape[1] is None:
            raise CallboardError(f"A torso must give features [batch, size]; this one gives {features.shape}.")
        self._core.build(features.shape[1])
        features, _ = self._core.step(features, self.initial_state(1), first)
        self._head(features)


def _merge_time(tensor: Any) -> tf.Tensor:
    """`[T, B, ...]` -> `[T * B, ...]`."""
    tensor = tf.convert_to_tensor(tensor)
    known = tensor.shape[:2].num_elements()
    return tf.reshape(tensor, (-1 if known is None else known, *tensor.shape[2:]))


def _split_time(tensor: tf.Tensor, lengths: list[Any]) -> tf.Tensor:
    """`[T * B, ...]` -> `[T, B, ...]`."""
    return tf.reshape(tensor, (*lengths, *tensor.shape[1:]))
