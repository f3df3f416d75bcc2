"""Fitted Q evaluation: critics learn the value of a given policy from recorded transitions (Le et al. 2019).

https://arxiv.org/abs/1903.08738.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ...data import Nest
from ...environments.recorded.importance_sampling import ValueEstimate
from ...networks.actions.action_parts import ActionParts, one_hot_choices
from ...networks.actor_critics.composed_actor_critic import AdditiveCritics
from ...networks.target_update import copy_weights, move_weights
from ...networks.torsos.dense import Layers
from ...networks.torsos.encoders import Encoders
from ...settings.setting_types import LayerSize, PositiveFloat, PositiveInt, UnitInterval
from ...specs import EnvironmentSpec

_STEPS_AT_ONCE = 100


class Transitions(NamedTuple):
    """Recorded transitions, and what the evaluated policy does.  Leaves are arrays `[N, ...]`."""

    observation: Nest
    action: Nest
    reward: Any
    discount: Any
    """0 where the action terminated the episode."""
    next_observation: Nest
    next_action: Nest
    """Actions of the policy at the next observation, `[N, K, ...]`."""


@dataclasses.dataclass(frozen=True)
class FittedQSettings:
    """Settings of fitted Q evaluation.

    Attributes:
      steps: gradient steps.
      batch_size: transitions in each.
      learning_rate: of Adam.
      hidden_sizes: layers of each of two critics, whose mean is the value.
      target_update_rate: fraction of the distance to the critics that their targets move in a step.  Values are learned
        back from rewards once in 1 / rate steps: steps * rate must be several times 1 / (1 - γ).
    """

    steps: PositiveInt = 6_000
    batch_size: PositiveInt = 256
    learning_rate: PositiveFloat = 1e-3
    hidden_sizes: tuple[LayerSize, ...] = (128, 128)
    target_update_rate: UnitInterval = 0.1


def value_range(reward: np.ndarray, discount: float) -> tuple[float, float]:
    """Returns the least and the largest value that rewards `[N]` allow; infinite without a discount.

    Critics guess about actions that are not in the data, and their targets would pass the guesses on without end.
    """
    lowest, highest = min(float(np.min(reward)), 0.0), max(float(np.max(reward)), 0.0)
    steps = 1 / (1 - discount) if discount < 1 else np.inf
    return (lowest * steps if lowest else 0.0), (highest * steps if highest else 0.0)


def fitted_q_evaluation(
    spec: EnvironmentSpec,
    transitions: Transitions,
    first_observation: Nest,
    first_action: Nest,
    discount: float,
    settings: FittedQSettings,
    seed: int,
) -> ValueEstimate:
    """Estimates the value of a policy as the critics' mean value of its actions at first observations.

    Args:
      spec: the environment's spec.
      transitions: the recorded transitions.
      first_observation: first observations of episodes, `[E, ...]`.
      first_action: the policy's actions there, `[E, K, ...]`.
      discount: gamma.
      settings: see `FittedQSettings`.
      seed: of networks and batches.
    """
    tf.keras.utils.set_random_seed(seed)
    parts = ActionParts(spec.action)
    encoders = Encoders(spec, normalize_observations=True)
    layers = Layers(settings.hidden_sizes)
    critic, target = (AdditiveCritics(spec, parts, encoders.make(), layers=layers) for _ in range(2))
    assert encoders.normalizer is not None
    encoders.normalizer.update(transitions.observation, leading=1)
    copy_weights(critic, target)
    lowest, highest = value_range(transitions.reward, discount)
    # Values of about 1, whatever the rewards are.
    scale = max(float(np.abs(transitions.reward).mean()) / max(1 - discount, 1e-3), 1e-8)
    optimizer = tf.keras.optimizers.Adam(settings.learning_rate, jit_compile=False)
    variables = critic.trainable_variables
    optimizer.build(variables)

    def inputs(action: Nest) -> tuple[Any, Any]:
        """Returns numbers and weights of choices of actions, as critics take them."""
        weight = one_hot_choices(parts, parts.choices(action), tf.float32) if len(parts.sizes) else ()
        return parts.unit_numbers(action, tf.float32), weight

    def of_policy(of: AdditiveCritics, observation: Nest, numbers: Any, weight: Any) -> tf.Tensor:
        """Returns the mean value `[B]` of several actions `[B, K, ...]`."""
        if isinstance(numbers, tuple):
            # Values are linear in the weights of choices.
            return tf.reduce_mean(of(observation, (), tf.reduce_mean(weight, axis=1)), axis=0)
        number = numbers.shape[1]
        flat = tree.map_structure(lambda leaf: tf.reshape(leaf, (-1, *leaf.shape[2:])), (numbers, weight))
        repeated = tree.map_structure(lambda leaf: tf.repeat(leaf, number, axis=0), observation)
        return tf.reduce_mean(tf.reshape(tf.reduce_mean(of(repeated, *flat), axis=0), (-1, number)), axis=1)

    data = tree.map_structure(tf.constant, transitions)
    taken, after = inputs(data.action), inputs(data.next_action)
    count = len(transitions.reward)

    @tf.function(autograph=False)
    def update(first: tf.Tensor, steps: tf.Tensor) -> None:
        tf.while_loop(lambda number: number < steps, lambda number: step(first + number, number), [tf.constant(0)])

    def step(index: tf.Tensor, number: tf.Tensor) -> list[tf.Tensor]:
        rows = tf.random.stateless_uniform((settings.batch_size,), [seed, index], 0, count, tf.int32)
        batch, (numbers, weight), next_inputs = tree.map_structure(
            lambda leaf: tf.gather(leaf, rows), (data._replace(action=(), next_action=()), taken, after)
        )
        # After a termination there is nothing to bootstrap from.
        next_value = of_policy(target, batch.next_observation, *next_inputs)
        wanted = batch.reward / scale + tf.math.multiply_no_nan(next_value, discount * batch.discount)
        wanted = tf.clip_by_value(wanted, lowest / scale, highest / scale)
        with tf.GradientTape() as tape:
            errors = critic(batch.observation, numbers, weight) - wanted
            loss = tf.reduce_mean(tf.reduce_sum(tf.square(errors), axis=0))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        move_weights(critic, target, tf.constant(settings.target_update_rate, tf.float64))
        return [number + 1]

    for begin in range(0, settings.steps, _STEPS_AT_ONCE):
        update(tf.constant(begin), tf.constant(min(_STEPS_AT_ONCE, settings.steps - begin)))
    first = tree.map_structure(tf.constant, first_observation)
    value = scale * of_policy(critic, first, *inputs(tree.map_structure(tf.constant, first_action))).numpy()
    return ValueEstimate(float(value.mean()), float(value.std() / len(value) ** 0.5), float(len(value)))
