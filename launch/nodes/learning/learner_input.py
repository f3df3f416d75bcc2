"""Turns an agent's dataset into a learner's batches, under its distribution strategy."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from ....agents.agent import Agent
from ....data import Layout
from ....replay import Elements, ReplayDataset, ReplayHandle
from ....tracing_lock import TRACING


def distributed_batches(
    agent: Agent,
    replay: ReplayHandle,
    layout: Layout,
    strategy: tf.distribute.Strategy,
    made: Callable[[ReplayDataset], None],
) -> Iterable[Any]:
    """Returns an iterable of batches, each split over the replicas; `made` is called with the underlying dataset."""
    if strategy is tf.distribute.get_strategy() and not tf.config.list_logical_devices("GPU"):
        # CPU only: distributing batches and copying them to devices would take four times as long.
        dataset = agent.make_replay(layout).dataset(replay, tf.distribute.InputContext())
        made(dataset)
        return Elements(dataset.dataset)

    def of_pipeline(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
        dataset = agent.make_replay(layout).dataset(replay, input_context)
        made(dataset)
        if input_context.num_input_pipelines == 1:
            return dataset.dataset
        # For a finite dataset all learners would agree before each batch whether the data has ended; it is infinite.
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        return dataset.dataset.apply(endless)

    return strategy.distribute_datasets_from_function(of_pipeline)


def iterators(make_batches: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[Any]]:
    """Returns a function that makes an iterator over batches; while it traces functions, no other thread does."""

    def make() -> Iterator[Any]:
        with TRACING:
            batches = make_batches()
            if not isinstance(batches, Elements):
                return iter(batches)
        return iter(batches)

    return make
