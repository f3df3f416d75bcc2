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
from ...networks.actor_critics.composed_actor_critic import AdditiveTwinCritic
from ...networks.target_update import copy_weights, move_weights
from ...networks.torsos.encoders import Encoders
from ...specs import EnvironmentSpec


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

    steps: int = 10_000
    batch_size: int = 256
    learning_rate: float = 1e-3
    hidden_sizes: tuple[int, ...] = (256, 256)
    target_update_rate: float = 0.05


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
    critic, target = (AdditiveTwinCritic(spec, parts, encoders.make(), settings.hidden_sizes) for _ in range(2))
    assert encoders.normalizer is not None
    encoders.normalizer.update(transitions.observation, leading=1)
    copy_weights(critic, target)
    # Values of about 1, whatever the rewards are.
    scale = max(float(np.abs(transitions.reward).mean()) / max(1 - discount, 1e-3), 1e-8)
    optimizer = tf.keras.optimizers.Adam(settings.learning_rate, jit_compile=False)
    variables = critic.trainable_variables
    optimizer.build(variables)

    def values(of: AdditiveTwinCritic, observation: Nest, action: Nest) -> list[tf.Tensor]:
        weight = one_hot_choices(parts, parts.choices(action), tf.float32) if len(parts.sizes) else ()
        return list(of(observation, parts.unit_numbers(action, tf.float32), weight))

    def of_policy(of: AdditiveTwinCritic, observation: Nest, action: Nest) -> tf.Tensor:
        """Returns the mean value `[B]` of several actions `[B, K, ...]`."""
        number = tree.flatten(action)[0].shape[1]
        repeated = tree.map_structure(lambda leaf: tf.repeat(leaf, number, axis=0), observation)
        flat = tree.map_structure(lambda leaf: tf.reshape(leaf, (-1, *leaf.shape[2:])), action)
        return tf.reduce_mean(tf.reshape(tf.add_n(values(of, repeated, flat)) / 2, (-1, number)), axis=1)

    @tf.function(autograph=False)
    def step(batch: Transitions) -> None:
        after = of_policy(target, batch.next_observation, batch.next_action)
        # After a termination there is nothing to bootstrap from.
        wanted = batch.reward / scale + tf.math.multiply_no_nan(after, discount * batch.discount)
        with tf.GradientTape() as tape:
            losses = [tf.square(q - wanted) for q in values(critic, batch.observation, batch.action)]
            loss = tf.reduce_mean(tf.add_n(losses))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        move_weights(critic, target, tf.constant(settings.target_update_rate, tf.float64))

    batches = (
        tf.data.Dataset.from_tensor_slices(transitions)
        .shuffle(len(transitions.reward), seed=seed)
        .repeat()
        .batch(settings.batch_size, drop_remainder=True)
        .take(settings.steps)
    )
    for batch in batches:
        step(batch)
    first = scale * of_policy(critic, first_observation, tree.map_structure(tf.constant, first_action)).numpy()
    return ValueEstimate(float(first.mean()), float(first.std() / len(first) ** 0.5), float(len(first)))
