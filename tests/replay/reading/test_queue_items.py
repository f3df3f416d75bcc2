"""Queues of several shards: fair, in order, with little read ahead, also while a shard is away."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from numbered_blocks import ENVS, LENGTH, layout_of, numbered

from callboard.replay import BatchReader, Elements, ReplayHandle, SequenceQueue, start_server
from callboard.replay.reading.queue_items import in_turn
from callboard.runtime.deadlines import wait_until

SHARDS = 3


class Readers:
    """Readers of numbers that are there, as many as each has."""

    def __init__(self, counts):
        self.arrived, self.ended = threading.Event(), threading.Event()
        self.readers = [self.Reader(10 * index, count) for index, count in enumerate(counts)]
        self.elements = in_turn(self.readers, self.arrived, self.ended)

    class Reader:
        def __init__(self, first, count):
            self.left = list(range(first, first + count))

        def poll(self, timeout):
            return self.left.pop(0) if self.left else None


def test_shards_take_turns():
    readers = Readers([4, 2, 4])
    assert [next(readers.elements) for _ in range(10)] == [0, 10, 20, 1, 11, 21, 2, 22, 3, 23]


def test_a_shard_without_items_is_not_waited_for():
    readers = Readers([0, 3, 0])
    assert [next(readers.elements) for _ in range(3)] == [10, 11, 12]
    threading.Timer(0.05, lambda: (readers.readers[2].left.append(25), readers.arrived.set())).start()
    assert next(readers.elements) == 25


def test_the_end_ends_waiting():
    readers = Readers([0, 0])
    threading.Timer(0.05, readers.ended.set).start()
    assert list(readers.elements) == []


def queue_of(batches=12, actors=SHARDS, **other):
    layout = layout_of(numbered(0))._replace(shards=SHARDS, actors=actors)
    return SequenceQueue(layout, LENGTH, ENVS, batches, **other)


def written(queue, replay, shard, items):
    """Writes items whose observations begin at 100,000 times the shard, without waiting for room."""
    writer = queue.writer(replay, shard)
    for timestep in range(items * LENGTH + 1):
        record = numbered(timestep)
        writer.append(record._replace(observation=record.observation + np.float32(100_000 * shard)), ())
    assert writer.ready(60.0, max_pending=0)


@pytest.fixture
def reader_of():
    readers = []

    def make(queue, replay):
        dataset = queue.dataset(replay, tf.distribute.InputContext()).dataset
        readers.append((replay, BatchReader(lambda: Elements(dataset), stopped=lambda: False)))
        return readers[-1][1]

    yield make
    for replay, reader in readers:
        replay.ended.set()
        reader.close()


def firsts(reader, batches):
    """The numbers with which the next batches begin."""
    return [int(next(reader).record.observation[0, 0, 0]) for _ in range(batches)]


@pytest.mark.slow("daily")
def test_each_item_of_all_shards_is_read_once_and_in_order(serve, reader_of):
    queue = queue_of(batches=30)
    replay = serve(*(queue.tables() for _ in range(SHARDS)))
    for shard in range(SHARDS):
        written(queue, replay, shard, 10)
    found = firsts(reader_of(queue, replay), 3 * 10)
    by_shard = [[number for number in found if number // 100_000 == shard] for shard in range(SHARDS)]
    expected = [100 * LENGTH * item for item in range(10)]
    assert [[number % 100_000 for number in of_shard] for of_shard in by_shard] == [expected] * SHARDS


@pytest.mark.slow("daily")
def test_more_shards_hold_and_read_ahead_little_more_than_one(serve, reader_of):
    queue = queue_of(batches=12)
    assert [table.info.max_size for table in queue.tables()] == [12 // SHARDS]
    replay = serve(*(queue_of(batches=90).tables() for _ in range(SHARDS)))
    for shard in range(SHARDS):
        written(queue, replay, shard, 20)
    reader = reader_of(queue, replay)
    firsts(reader, 5)
    time.sleep(0.3)
    left = sum(replay.client(shard).server_info()["queue"].current_size for shard in range(SHARDS))
    # Two by the reader in front of the learner, two of the dataset, and two of each shard.
    assert SHARDS * 20 - 5 - left <= 4 + 2 * SHARDS


def test_with_a_limit_on_the_lag_a_learner_reads_the_shards_of_its_actors():
    queue = queue_of(actors=6, max_policy_lag=0)
    assert [list(queue._shards_of(number)) for number in range(1)] == [[0, 1, 2]]
    layout = queue.layout._replace(learners=3)
    several = SequenceQueue(layout, LENGTH, 6 * ENVS, 1, max_policy_lag=0)
    assert [several._shards_of(number) for number in range(3)] == [[0], [1], [2]]
    two = SequenceQueue(layout._replace(learners=2), LENGTH, 6 * ENVS, 1, max_policy_lag=0)
    assert [two._shards_of(number) for number in range(2)] == [[0, 1, 2], [0, 1, 2]]
    assert all(table.info.max_size >= 3 for table in two.tables())


@pytest.mark.slow("daily")
def test_while_a_shard_is_away_the_others_are_read_and_then_it_too(tmp_path, reader_of):
    queue = queue_of(batches=30)
    servers = [start_server(queue.tables(), None, tmp_path / str(shard)) for shard in range(SHARDS)]
    ports, lives = [server.port for server in servers], ["first"] * SHARDS
    replay = ReplayHandle(lambda: [f"localhost:{port}" for port in ports], lambda: lives)
    try:
        reader = reader_of(queue, replay)
        written(queue, replay, 1, 1)
        assert firsts(reader, 1) == [100_000]
        servers[1].stop()
        for shard in (0, 2):
            written(queue, replay, shard, 4)
        found = firsts(reader, 8)
        assert sorted({number // 100_000 for number in found}) == [0, 2]
        servers[1] = start_server(queue.tables(), None, tmp_path / "again")
        ports[1], lives[1] = servers[1].port, "second"
        written(queue, replay, 1, 2)
        again = []
        assert wait_until(lambda: again.append(reader.poll(0.2)) or again[-1] is not None, 60.0, 0.0)
        assert int(again[-1].record.observation[0, 0, 0]) == 100_000
    finally:
        for server in servers:
            server.stop()
