"""The `Network` module: a torso for features, a core for memory and a head for outputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from .. import specs
from ..data import Nest
from ..errors import CallboardError
from ..runtime.tracing_lock import TRACING
from .actions.legal_actions import legal_actions
from .normalization import RunningNormalizer, WithoutPart
from .own_parts import BUILT_WITH
from .recurrent import Core
from .tensor_words import tensors_text
from .torsos.flatten import flat_features

BONUS_WEIGHT = "bonus_weight"
"""The part of an observation that holds `Inputs.bonus_weight`, for the torso of a network that takes it."""


class Inputs(NamedTuple):
    """Inputs of a network, with leading axes `[B, ...]` for a step and `[T, B, ...]` for an unroll."""

    observation: Nest
    previous_action: Nest = ()
    """The action that led to the observation; `()` for networks that do not take it."""
    previous_reward: Any = ()
    """The reward of that action; `()` for networks that do not take it."""
    bonus_weight: Any = ()
    """The weight of the exploration bonus in the values that are wanted; `()` for networks that do not take it."""


class Network(tf.Module):
    """A torso, a core and a head, with all variables built by the constructor.

    The torso (any `tf.keras.layers.Layer` or `tf.keras.Model`) maps the observation nest `[N, ...]` to features
    `[N, F]`.  The core carries state over time.  The head maps the core's output `[N, F']` to any nest of tensors
    `[N, ...]`.

    A recurrent state is the input that goes with an observation.  Where `first` is True, the state is reset before the
    observation is processed, and the previous action and reward, which belong to another episode, are set to zero.

    A head with an attribute `task` or `selected_by`, the name of a part of the observation, has that part, `[N, ...]`,
    as its second argument.  One with a true attribute `takes_legal` has another argument: which actions are legal, bool
    `[N, A]`, or None if observations contain no action mask.

    Variables are created in the strategy scope that surrounds the constructor.  Their initial values depend only on
    an earlier call of `tf.keras.utils.set_random_seed` in the same thread.
    """

    spec: specs.EnvironmentSpec
    """The environment's spec, with stacks in place of frames."""

    def __init__(
        self,
        spec: specs.EnvironmentSpec,
        torso: Any,
        core: Core,
        head: Any,
        previous_inputs: bool = False,
        normalizer: RunningNormalizer | WithoutPart | None = None,
        check_outputs: Callable[[Any], None] | None = None,
        takes_bonus_weight: bool = False,
        name: str | None = None,
    ) -> None:
        """Builds all variables.

        Args:
          spec: the environment's spec.
          torso: maps an observation nest `[N, ...]` to features `[N, F]`.
          core: a `recurrent.Core`.
          head: maps features `[N, F']` to outputs, a nest of `[N, ...]`.
          previous_inputs: whether `Inputs.previous_action` and `Inputs.previous_reward` are appended to the torso's
            features: actions as in `flatten.flat_features`, a reward r as sign(r) log(1 + |r|).
          normalizer: normalizes observations before the torso; None leaves them unchanged.
          check_outputs: raises `CallboardError` if the head's outputs are not what they should be; None for no check.
          takes_bonus_weight: whether the torso sees `Inputs.bonus_weight`, as the part `bonus_weight` of observations.
          name: name of the module.

        Raises:
          CallboardError: if the torso's output is not a batch of vectors, or the core has no `state_spec`.
        """
        super().__init__(name)
        self._torso = torso
        self._core = core
        self._head = head
        self.previous_inputs = previous_inputs
        self.takes_bonus_weight = takes_bonus_weight
        self.normalizer = normalizer
        keep_spec(self, spec)
        with TRACING:
            outputs = self._build(spec)
        if check_outputs is not None:
            check_outputs(outputs)

    @property
    def state_spec(self) -> Nest:
        """Nest of `tf.TensorSpec` of the state, without the batch axis."""
        return self._core.state_spec

    @property
    def acting(self) -> "Network":
        """The network that gives the same policy without what only the learner needs, by `step`."""
        return self

    def initial_state(self, batch_size: Any) -> Nest:
        """Returns the state at the start of an episode, leaves `[batch_size, ...]`; `()` without recurrence."""
        return self._core.initial_state(batch_size)

    @tf.autograph.experimental.do_not_convert
    def step(self, inputs: Inputs, state: Nest, first: tf.Tensor, training: bool = False) -> tuple[Any, Nest]:
        """Processes one timestep.

        Args:
          inputs: leaves `[B, ...]`.
          state: leaves `[B, ...]`.
          first: bool `[B]`, whether the observation begins an episode.
          training: see `unroll`.

        Returns:
          Outputs, leaves `[B, ...]`, and the state for the next observation.
        """
        features, state = self._core.step(self._features(inputs, first, training), state, first)
        return self._outputs(features, inputs.observation), state

    @tf.autograph.experimental.do_not_convert
    def unroll(self, inputs: Inputs, state: Nest, first: tf.Tensor, training: bool = False) -> tuple[Any, Nest]:
        """Processes a sequence of timesteps, with the results of repeated calls of `step`, but faster.

        Args:
          inputs: leaves `[T, B, ...]`.
          state: leaves `[B, ...]`, the state for the first observation.
          first: bool `[T, B]`, whether an observation begins an episode.
          training: whether a learner differentiates the outputs.  Batch normalization in the torso then uses the
            statistics of the batch and updates its moving averages.  Acting and target computation pass False and use
            the moving averages, which are part of the weights.

        Returns:
          Outputs, leaves `[T, B, ...]`, and the state for the observation after the last.
        """
        first = tf.convert_to_tensor(first)
        lengths = [tf.shape(first)[axis] if known is None else known for axis, known in enumerate(first.shape)]
        merged = tree.map_structure(merge_time, inputs)
        features = split_time(self._features(merged, merge_time(first), training), lengths)
        features, state = self._core.unroll(features, state, first)
        outputs = self._outputs(merge_time(features), merged.observation)
        return tree.map_structure(lambda output: split_time(output, lengths), outputs), state

    @property
    def torso(self) -> Any:
        """The torso, which maps observations to features."""
        return self._torso

    @property
    def core(self) -> Core:
        """The core, which carries state over time."""
        return self._core

    @property
    def head(self) -> Any:
        """The head, which maps features to outputs."""
        return self._head

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, in a fixed order, without those of layers that the user has frozen."""
        parts = (self._torso, self._core, self._head)
        # A layer that two parts share must be listed only once.
        unique = {id(variable): variable for part in parts for variable in part.trainable_variables}
        return tuple(unique.values())

    @property
    def value_variables(self) -> tuple[tf.Variable, ...]:
        """Trainable variables of the value function alone; empty if the head does not name them."""
        return tuple(getattr(self._head, "value_variables", ()))

    @property
    def popart(self) -> Any:
        """The head's `popart.PopArtValueHead`; None if it has none."""
        return getattr(self._head, "popart", None)

    def regularization_loss(self) -> Any:
        """Returns one replica's share of the torso's regularization losses, such as L2: a scalar, 0 for most torsos."""
        # The total loss is the sum over all replicas.
        return sum(self._torso.losses) / tf.distribute.get_strategy().num_replicas_in_sync

    def _features(self, inputs: Inputs, first: tf.Tensor, training: bool = False) -> tf.Tensor:
        observation = inputs.observation if self.normalizer is None else self.normalizer(inputs.observation)
        if self.takes_bonus_weight:
            observation = with_bonus_weight(observation, inputs.bonus_weight)
        features = self._torso(observation, training=training)
        if not self.previous_inputs:
            return features
        if isinstance(inputs.previous_reward, tuple):
            raise ValueError("this network needs the previous action and reward; the inputs hold none")
        action = flat_features(self.spec.action, inputs.previous_action, features.dtype)
        reward = tf.cast(inputs.previous_reward, features.dtype)
        # Rewards of any size are features of a size that the layers above can use.
        reward = tf.sign(reward) * tf.math.log1p(tf.abs(reward))
        previous = tf.concat([action, reward[:, tf.newaxis]], axis=-1)
        previous = tf.where(first[:, tf.newaxis], tf.zeros_like(previous), previous)
        return tf.concat([features, previous], axis=-1)

    def _outputs(self, features: tf.Tensor, observation: Nest) -> Any:
        part = getattr(self._head, "task", None) or getattr(self._head, "selected_by", None)
        arguments = [] if part is None else [observation[part]]
        if getattr(self._head, "takes_legal", False):
            arguments.append(legal_actions(observation))
        return self._head(features, *arguments)

    def _build(self, spec: specs.EnvironmentSpec) -> Any:
        observation, action = tree.map_structure(tf.constant, specs.zeros((spec.observation, spec.action), BUILT_WITH))
        inputs = Inputs(observation, action, tf.zeros((BUILT_WITH,)), tf.zeros((BUILT_WITH,)))
        first = tf.ones((BUILT_WITH,), tf.bool)
        features = self._features(inputs, first)
        _check_features("torso", features)
        self._core.build(features.shape[1])
        if not hasattr(self._core, "state_spec"):
            raise CallboardError(
                f"core {type(self._core).__name__} has no state_spec after build: set it to tf.TensorSpecs of its state"
            )
        state = self.initial_state(BUILT_WITH)
        stepped = self._core.step(features, state, first)
        name = type(self._core).__name__
        if not isinstance(stepped, tuple) or len(stepped) != 2:
            raise CallboardError(f"core {name}: step must return features and state, not {tensors_text(stepped)}")
        features, after = stepped
        _check_features("core", features)
        wanted = tree.map_structure(
            lambda spec: tf.TensorSpec((BUILT_WITH, *spec.shape), spec.dtype), self._core.state_spec
        )
        for what, found in ((f"initial_state({BUILT_WITH}) returns", state), ("step returns the state", after)):
            if tensors_text(found) != tensors_text(wanted):
                raise CallboardError(
                    f"core {name}: {what} {tensors_text(found)}, and its state_spec stands for {tensors_text(wanted)}"
                )
        return self._outputs(features, observation)


def _check_features(part: str, features: Any) -> None:
    shape = features.shape if tf.is_tensor(features) else tf.TensorShape(None)
    if shape.rank != 2 or shape[0] not in (None, BUILT_WITH) or not shape[1]:
        found = shape if tf.is_tensor(features) else tensors_text(features)
        raise CallboardError(
            f"a {part} must give features [batch, size], of a size of at least 1; for a batch of {BUILT_WITH} this one "
            f"gives {found}"
        )
    if not features.dtype.is_floating:
        raise CallboardError(f"a {part} must give floats; this one gives {features.dtype.name}")


def with_bonus_weight(observation: Nest, weight: Any) -> Nest:
    """Returns an observation, or its spec, with the part `bonus_weight`."""
    return {**specs.named_parts(observation), BONUS_WEIGHT: weight}


def keep_spec(module: tf.Module, spec: specs.EnvironmentSpec) -> None:
    """Sets the attribute `spec` of a module, without TensorFlow's tracking, which would replace dictionaries in it."""
    object.__setattr__(module, "spec", spec)


def merge_time(tensor: Any) -> tf.Tensor:
    """Reshapes `[T, B, ...]` to `[T * B, ...]`."""
    tensor = tf.convert_to_tensor(tensor)
    known = tensor.shape[:2].num_elements()
    return tf.reshape(tensor, (-1 if known is None else known, *tensor.shape[2:]))


def split_time(tensor: tf.Tensor, lengths: list[Any]) -> tf.Tensor:
    """Reshapes `[T * B, ...]` to `[T, B, ...]`."""
    return tf.reshape(tensor, (*lengths, *tensor.shape[1:]))
