"""PPO's data of an iteration: a rollout with advantages and targets, and its minibatches."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tree

from ..data import Nest, Sample
from ..networks.gathers import gather
from ..networks.heads.popart import updated_return_scale
from ..networks.network import Inputs
from ..networks.random_streams import Stream, stream_seed
from ..transitions import valid_transitions
from .learning.exploration_bonus import ExplorationBonus
from .learning.network_inputs import sequence_inputs
from .learning.on_policy import joined
from .losses.gae import gae, standardized
from .losses.replicas import sum_over_replicas
from .policies.ppo_policy import PpoNetworks


class Rollout(NamedTuple):
    """A replica's share of an iteration's data: B sequences of T transitions.

    For a network without memory every transition is a separate sequence, so T is 1.
    """

    inputs: Inputs
    """The network's inputs, `[T, B, ...]`."""
    first: tf.Tensor
    """bool `[T, B]`."""
    action: Nest
    """Chosen actions, as in `networks.action_policy`, leaves `[T, B, ...]`."""
    log_prob: tf.Tensor
    """`[T, B]`, log-probability of the action under the behavior policy."""
    valid: tf.Tensor
    """bool `[T, B]`, the valid transitions."""
    value: tf.Tensor
    """`[T, B]`, value estimates before the iteration."""
    advantage: tf.Tensor
    """`[T, B]`, standardized over the global batch."""
    target: tf.Tensor
    """`[T, B]`, targets of the value."""
    state: Nest
    """`[B, ...]`, the network's recurrent state at the first observation."""
    measured: Any = ()
    """The `Measured` of the exploration bonus; `()` without one."""


def observation_values(networks: PpoNetworks, sample: Sample) -> tf.Tensor:
    """Returns the values `[T + 1, B]` of a sample's observations."""
    record = sample.record
    inputs, state = sequence_inputs(record, sample.state)
    outputs, _ = networks.network.unroll(inputs, state, record.first)
    return outputs.value


def make_rollout(
    networks: PpoNetworks,
    samples: Sequence[Sample],
    values: Sequence[tf.Tensor],
    discount: float,
    gae_lambda: float,
    normalize_advantages: bool,
    learning_reward: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    bonus: ExplorationBonus | None = None,
) -> Rollout:
    """Returns a replica's share of an iteration's data, and updates the statistics of returns and those of PopArt.

    Args:
      networks: the networks to train.
      samples: a replica's share of a batch, in elements.
      values: the values of each element, `[T + 1, B]`.
      discount: γ.
      gae_lambda: λ of the advantages.
      normalize_advantages: whether advantages are standardized over the global batch.
      learning_reward: maps rewards to those that are learned from; the network takes previous rewards as they are.
      bonus: the exploration bonus; None for none.
    """
    sample = joined(samples)
    record = sample.record
    value = tf.concat(values, axis=1)
    valid_t = valid_transitions(record.first, record.last, record.discount)
    estimates = gae(
        values=value,
        r_t=learning_reward(networks.normalized(sample).record.reward),
        discount_t=discount * tf.cast(record.discount, value.dtype),
        valid_t=valid_t,
        lambda_=gae_lambda,
    )
    inputs, core = sequence_inputs(record, sample.state)
    inputs = tree.map_structure(lambda leaf: leaf[:-1], inputs)
    scale_t = updated_return_scale(networks.network, estimates.targets, valid_t, inputs.observation)
    advantages = estimates.advantages / scale_t
    measured: Any = ()
    if bonus is not None:
        measured = bonus.measured(record)
        intrinsic = bonus.intrinsic(measured, record, functools.partial(gae, lambda_=gae_lambda))
        measured = measured._replace(target=intrinsic.targets)
        advantages += bonus.weighted(measured, intrinsic.advantages)
    if normalize_advantages:
        advantages = standardized(advantages, valid_t, sum_over_replicas, estimates.targets / scale_t)
    rollout = Rollout(
        inputs=inputs,
        first=record.first[:-1],
        action=networks.actions.from_record(record.action, record.extras.gaussian),
        log_prob=record.extras.log_prob,
        valid=valid_t,
        value=value[:-1],
        advantage=advantages,
        target=estimates.targets,
        state=core,
        measured=measured,
    )
    return rollout if networks.has_memory else single_transitions(rollout)


def single_transitions(rollout: Any) -> Any:
    """Returns a rollout with sequences of one transition, for a network without memory: leaves `[1, T B, ...]`."""

    def as_sequences(leaf: tf.Tensor) -> tf.Tensor:
        return tf.reshape(leaf, (1, leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]))

    return tree.map_structure(as_sequences, rollout)


def select_minibatch(rollout: Any, minibatches: int, number: tf.Tensor, seed: tf.Tensor) -> Any:
    """Returns one of the equal minibatches into which an epoch divides a rollout's sequences.

    Args:
      rollout: a replica's share, a named tuple with `valid` and `state`, such as `Rollout`.
      minibatches: number of them.
      number: int32 scalar, index of the minibatch in its epoch.
      seed: int64 `[2]`, seed of the epoch's order of sequences.
    """
    if minibatches == 1:
        return rollout
    sequences = rollout.valid.shape[1]
    order = tf.random.experimental.stateless_shuffle(tf.range(sequences), stream_seed(seed, Stream.MINIBATCH))
    columns = sequences // minibatches
    chosen = order[number * columns :][:columns]
    selected = tree.map_structure(lambda leaf: gather(leaf, chosen, axis=1), rollout._replace(state=()))
    return selected._replace(state=tree.map_structure(lambda leaf: gather(leaf, chosen), rollout.state))
