"""A queue of gradients: each is read once, in order, whole, and resent ones are dropped."""

import numpy as np
import pytest
import tensorflow as tf
import timestep_streams
import tree
from reading import read_batches, reading

from callboard.data import Layout
from callboard.errors import CallboardError
from callboard.replay import GradientItem, GradientQueue

ENVS = 3
LAYOUT: Layout = timestep_streams.layout(ENVS)
QUEUE = GradientQueue(LAYOUT, length=2, waiting=10, keeps_observations=True)


def item_of(number: int, size: int = 5) -> GradientItem:
    def observation(spec: tf.TensorSpec) -> np.ndarray:
        return np.full((3, ENVS, *spec.shape), number, spec.dtype.as_numpy_dtype)

    return GradientItem(
        id=(),
        gradient=np.arange(size, dtype=np.float32) + number,
        metrics=np.array([number, -1.0], np.float32),
        version=np.full((2, ENVS, 2), number, np.int32),
        valid=np.arange(2 * ENVS).reshape(2, ENVS) % 3 == number % 3,
        observation=tree.map_structure(observation, LAYOUT.record.observation),
    )


def test_gradients_are_read_once_in_order(serve):
    replay = serve(QUEUE.tables())
    writer = QUEUE.writer(replay, 0)
    for number in range(4):
        writer.append(item_of(number))
        assert writer.ready(10.0)
    assert writer.ready(10.0, max_pending=0) and writer.items_written == 4
    elements = read_batches(QUEUE.dataset(replay, tf.distribute.InputContext()).dataset, 4)
    for number, element in enumerate(elements):
        tree.map_structure(np.testing.assert_array_equal, element._replace(id=()), item_of(number))
    assert replay.client().server_info()["gradients"].current_size == 0
    writer.close()


def test_a_gradient_that_is_sent_again_is_dropped(serve):
    replay = serve(QUEUE.tables())
    first = QUEUE.writer(replay, 0)
    for writer, number in ((first, 1), (first, 2), (QUEUE.writer(replay, 0), 3)):
        writer.append(item_of(number))
        assert writer.ready(10.0, max_pending=0)
    first.items_written = 1
    first.append(item_of(4))
    first.append(item_of(5))
    assert first.ready(10.0, max_pending=0)
    elements = read_batches(QUEUE.dataset(replay, tf.distribute.InputContext()).dataset, 4)
    assert [int(element.metrics[0]) for element in elements] == [1, 2, 3, 5]
    assert replay.received.dropped() == 1


def test_a_full_queue_makes_actors_wait_but_never_blocks(serve):
    queue = GradientQueue(LAYOUT, length=2, waiting=3, keeps_observations=False)
    replay = serve(queue.tables())
    writer = queue.writer(replay, 0)
    for number in range(5):
        writer.append(item_of(number)._replace(observation=()))
    assert not writer.ready(0.3)
    with reading(queue.dataset(replay, tf.distribute.InputContext()).dataset) as elements:
        assert next(elements).observation == () and writer.ready(10.0)


def test_a_second_shard_is_refused():
    with pytest.raises(CallboardError, match="set replay_shards to 1, not 2"):
        GradientQueue(LAYOUT._replace(shards=2), 2, 3, False).check()
