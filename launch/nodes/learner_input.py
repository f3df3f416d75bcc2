"""From an agent's dataset to the batches of a learner, under its strategy."""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from ...agents.agent import Agent
from ...data import Layout
from ...replay import Elements, ReplayDataset, ReplayHandle


def distributed_batches(
    agent: Agent,
    replay: ReplayHandle,
    layout: Layout,
    strategy: tf.distribute.Strategy,
    made: Callable[[ReplayDataset], None],
) -> Iterable[Any]:
    """An iterable of batches, each shared by the replicas; `made` is called with the dataset that it reads."""
    if strategy is tf.distribute.get_strategy() and not tf.config.list_logical_devices("GPU"):
        # The processor alone: what shares batches out, and brings them to other devices, takes four times as long.
        dataset = agent.make_replay(layout).dataset(replay, tf.distribute.InputContext())
        made(dataset)
        return Elements(dataset.dataset)

    def of_pipeline(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
        dataset = agent.make_replay(layout).dataset(replay, input_context)
        made(dataset)
        if input_context.num_input_pipelines == 1:
            return dataset.dataset
        # An end of the data would be agreed on by all learners before each batch; there is none.
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        return dataset.dataset.apply(endless)

    return strategy.distribute_datasets_from_function(of_pipeline)
