"""Shared parts of agents that learn from the data of their newest weights: checks, and batches of limited age."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ...data import Layout, Sample
from ...errors import CallboardError
from ...replay import SequenceQueue
from ...transitions import valid_transitions
from ..agent import Mode
from .reward_normalizer import returns_discount


def acting_network(network: Any, mode: Mode) -> Any:
    """Returns the network with which a policy acts: the whole, or what other than the learner's actors need of it."""
    return network if mode == "train" else getattr(network, "acting", network)


def check_batch_sizes(layout: Layout, unroll_length: int, batch_size: int, accumulate: int = 1) -> None:
    """Checks that all environments contribute equally to a batch, and that the run is long enough for one.

    Args:
      layout: the layout.
      unroll_length: transitions in a sequence.
      batch_size: sequences in a batch, of all agents of the environments.
      accumulate: batches in an iteration.

    Raises:
      CallboardError: the sizes do not fit.
    """
    agents = layout.agents_per_env
    if batch_size % (layout.actors * layout.envs_per_actor):
        # Users count environments, and `Agent.for_agents` has multiplied their number by that of the agents.
        environments = layout.envs_per_actor // agents
        raise CallboardError(
            f"every environment gives the same number of sequences to an iteration: make agent.batch_size a "
            f"multiple of {layout.actors * environments} ({layout.actors} actors x {environments} environments), "
            f"not {batch_size // agents}"
        )
    if layout.actors % layout.learners:
        raise CallboardError(
            f"{layout.actors} actors cannot be shared evenly by {layout.learners} learners: make actors a multiple"
        )
    if layout.max_timesteps < unroll_length * batch_size * accumulate:
        factor = " x agent.accumulate" if accumulate > 1 else ""
        needed = unroll_length * batch_size * accumulate // agents
        raise CallboardError(
            f"learning would never begin: max_steps = {layout.max_steps} are fewer than the {needed} of an iteration "
            f"(agent.unroll_length x agent.batch_size{factor}); set max_steps to at least {needed}, or lower "
            "agent.unroll_length"
        )


def newest_data_queue(agent: Any, layout: Layout, sequences: int) -> SequenceQueue:
    """Returns a queue of data by the newest weights, and by earlier ones as far as `max_policy_lag` allows.

    Args:
      agent: has `unroll_length`, `max_policy_lag`, `frame_stack` and the settings of rewards.
      layout: the layout.
      sequences: sequences in a learner step, over all replicas.
    """
    return SequenceQueue(
        layout,
        agent.unroll_length,
        sequences,
        batches=1 + agent.max_policy_lag,
        max_policy_lag=agent.max_policy_lag,
        stack=agent.frame_stack,
        returns_discount=returns_discount(agent),
    )


def check_iterations(agent: Any, layout: Layout) -> None:
    """Checks the sizes of an agent with `IterationSettings`.

    Raises:
      CallboardError: they do not fit.
    """
    check_batch_sizes(layout, agent.unroll_length, agent.batch_size)
    agent.make_replay(layout).check()
    core = agent.network.core
    # Of a core of the user's own this is known once it is made.
    check_minibatches(agent, layout, has_memory=core != "none" and ":" not in core)


def check_minibatches(agent: Any, layout: Layout, has_memory: bool) -> None:
    """Checks that the data of an iteration can be divided into minibatches.

    Args:
      agent: has `batch_size`, `unroll_length` and `minibatches`.
      layout: the layout.
      has_memory: whether the network needs whole sequences.

    Raises:
      CallboardError: the data cannot be divided.
    """
    share, what = agent.batch_size // layout.replicas, "sequences"
    if not has_memory:
        share, what = share * agent.unroll_length, "transitions"
    if share % agent.minibatches:
        raise CallboardError(
            f"the {share} {what} of a learner device cannot be divided into {agent.minibatches} minibatches: set "
            f"agent.minibatches to {_nearest_divisor(share, agent.minibatches)}"
        )


def _nearest_divisor(number: int, wanted: int) -> int:
    return min((n for n in range(1, number + 1) if number % n == 0), key=lambda n: (abs(n - wanted), n))


class FreshBatch(NamedTuple):
    """A batch of data that is new enough."""

    elements: list[Sample]
    """The dataset's elements that make it up, each distributed over the replicas."""
    policy_lag: float
    """Mean age of the weights that acted in valid transitions, in learner steps."""
    dropped: int
    """Number of elements that were dropped since the last batch because their weights were too old."""


class FreshBatches:
    """Takes batches from a dataset, and drops data older than a limit.

    Such data occurs when actors restart, or write additional sequences because another actor is slow: then more data
    may arrive than fits into the batch that it was meant for.

    Args:
      strategy: the strategy over whose replicas the data is distributed.
      elements: number of dataset elements that make up a batch.
      max_policy_lag: age, in learner steps, of the oldest weights whose data is learned from.
    """

    def __init__(self, strategy: tf.distribute.Strategy, elements: int, max_policy_lag: int):
        self._strategy = strategy
        self._elements = elements
        self._max_policy_lag = max_policy_lag

    def take(self, iterator: Iterator[Any], step: int) -> FreshBatch:
        """Takes the batch of learner step `step`."""
        samples: list[Sample] = []
        ages: list[np.ndarray] = []
        stale = 0
        while len(samples) < self._elements:
            sample = next(iterator)
            versions = self._strategy.experimental_local_results(sample.record.version)
            lag = step - np.stack([version[..., 1] for version in versions])
            # A negative lag is that of data from before the learner was restored from an older checkpoint.
            if 0 <= lag.min() and lag.max() <= self._max_policy_lag:
                samples.append(sample)
                ages.append(lag.ravel())
            else:
                stale += 1
        age = np.concatenate(ages)
        # Most are all the same.
        different = age.min() < age.max()
        valid = np.concatenate([*map(self._valid, samples)]) if different else np.ones_like(age, bool)
        return FreshBatch(samples, mean_of_valid(age, valid), stale)

    def _valid(self, sample: Sample) -> np.ndarray:
        """Returns which transitions of all replicas' shares are valid, flat."""
        of_episodes = (sample.record.first, sample.record.last, sample.record.discount)
        shares = zip(*map(self._strategy.experimental_local_results, of_episodes), strict=True)
        return np.stack([valid_transitions(*map(np.asarray, share)) for share in shares]).ravel()


def mean_of_valid(values: np.ndarray, valid: np.ndarray) -> float:
    """Returns the mean of numbers `[...]` over the valid transitions `[...]`; 0 of none."""
    return float(np.sum(values, where=valid) / max(1, np.sum(valid)))


def joined(samples: Sequence[Sample]) -> Sample:
    """Returns the elements of a replica's share of a batch as one sample; the items' information is left out."""
    record = tree.map_structure(lambda *leaves: tf.concat(leaves, axis=1), *(sample.record for sample in samples))
    state = tree.map_structure(lambda *leaves: tf.concat(leaves, axis=0), *(sample.state for sample in samples))
    returns = [sample.discounted_return for sample in samples]
    joined_returns = tree.map_structure(lambda *leaves: tf.concat(leaves, axis=1), *returns)
    return Sample(record, state, discounted_return=joined_returns)
