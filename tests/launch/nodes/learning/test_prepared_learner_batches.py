"""A learner's batches: straight from the dataset on one processor, and split over replicas under a strategy."""

import threading

import pytest
import tensorflow as tf

from callboard.data import Layout
from callboard.launch.nodes.learning.prepared_learner import distributed_batches, iterators
from callboard.replay import Elements, ReplayDataset, ReplayHandle
from callboard.runtime.tracing_lock import TRACING

LAYOUT = Layout(None, envs_per_actor=4, actors=1, shards=1, replicas=1, seed=0, max_steps=100)
HANDLE = ReplayHandle(lambda: ["localhost:1"])


class Counting:
    """An agent, and a replay whose batches are numbers."""

    def __init__(self):
        self.contexts = []

    def make_replay(self, layout):
        assert layout is LAYOUT
        return self

    def dataset(self, replay, input_context):
        assert replay is HANDLE
        self.contexts.append(input_context)
        return ReplayDataset(tf.data.Dataset.range(100), "numbers", 1)


@pytest.fixture
def agent():
    return Counting()


def test_on_one_processor_batches_are_the_elements_of_the_dataset(agent):
    made = []
    batches = distributed_batches(agent, HANDLE, LAYOUT, tf.distribute.get_strategy(), made.append)
    assert isinstance(batches, Elements) and [dataset.table for dataset in made] == ["numbers"]
    following = iter(batches)
    assert [int(next(following)) for _ in range(3)] == [0, 1, 2]
    assert agent.contexts[0].num_input_pipelines == 1


def test_a_reader_that_waits_for_its_server_does_not_keep_others_from_building_networks():
    waits, server_is_there, read = threading.Event(), threading.Event(), []

    class Away(Elements):
        def __iter__(self):
            waits.set()
            server_is_there.wait(20.0)
            return super().__iter__()

    make = iterators(lambda: Away(tf.data.Dataset.range(3)))
    thread = threading.Thread(target=lambda: read.extend(int(number) for number in make()))
    thread.start()
    assert waits.wait(10.0) and TRACING.acquire(timeout=5.0)
    TRACING.release()
    server_is_there.set()
    thread.join(20.0)
    assert read == [0, 1, 2]


def test_a_strategy_reads_the_same_batches(agent):
    made = []
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    following = iter(distributed_batches(agent, HANDLE, LAYOUT, strategy, made.append))
    assert [int(next(following)) for _ in range(3)] == [0, 1, 2]
    assert len(made) == 1 and agent.contexts[0].num_replicas_in_sync == 1


def read_by_two_replicas():
    """The first batches of each of two replicas."""
    agent = Counting()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    following = iter(distributed_batches(agent, HANDLE, LAYOUT, strategy, lambda dataset: None))
    read = [[int(value) for value in strategy.experimental_local_results(next(following))] for _ in range(2)]
    return [agent.contexts[0].num_replicas_in_sync, read]


def test_each_replica_gets_the_next_batch(on_two_devices):
    assert on_two_devices(__file__, "read_by_two_replicas") == [2, [[0, 1], [2, 3]]]
