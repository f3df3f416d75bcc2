"""From an agent's dataset to the batches of a learner, under its strategy."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..agents.agent import Agent
from ..data import Layout
from ..replay import ReplayDataset, ReplayHandle


def distributed_batches(
    agent: Agent,
    replay: ReplayHandle,
    layout: Layout,
    strategy: tf.distribute.Strategy,
    made: Callable[[ReplayDataset], None],
) -> Any:
    """An iterable of batches, each shared by the replicas; `made` is called with the dataset that it reads."""

    def of_pipeline(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
        dataset = agent.make_dataset(replay, layout, input_context)
        made(dataset)
        if input_context.num_input_pipelines == 1:
            return dataset.dataset
        # An end of the data would be agreed on by all learners before each batch; there is none.
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        return dataset.dataset.apply(endless)

    return strategy.distribute_datasets_from_function(of_pipeline)
