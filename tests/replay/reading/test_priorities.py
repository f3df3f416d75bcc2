"""Priority updates reach the shards that hold the items, and never block the learner."""

import socket
import time

import numpy as np
import pytest
import reverb
import tensorflow as tf

from callboard.data import Priorities
from callboard.errors import CallboardError
from callboard.replay import PriorityUpdater, ReplayHandle


def table():
    return reverb.Table(
        "replay", reverb.selectors.Prioritized(1.0), reverb.selectors.Fifo(), 100, reverb.rate_limiters.MinSize(1)
    )


def insert(replay, shard, count=10):
    """Inserts items and returns their keys."""
    for number in range(count):
        replay.client(shard).insert([np.float32(number)], {"replay": 1.0})
    return np.array(sorted(priorities_of(replay, shard)), np.uint64)


def priorities_of(replay, shard):
    samples = replay.client(shard).sample("replay", 300, emit_timesteps=False)
    return {sample.info.key: sample.info.priority for sample in samples}


def update(keys, shard, priority):
    return Priorities(keys, np.full(len(keys), shard, np.int32), np.full(len(keys), priority, np.float32))


@pytest.fixture
def unused_address():
    with socket.socket() as closed:
        closed.bind(("", 0))
        return f"localhost:{closed.getsockname()[1]}"


@pytest.fixture
def make_updater():
    updaters = []

    def make(*arguments, **options):
        updaters.append(PriorityUpdater(*arguments, **options))
        return updaters[-1]

    yield make
    for updater in updaters:
        updater.close()


def test_every_shard_receives_the_priorities_of_its_items(serve, make_updater):
    replay = serve([table()], [table()])
    keys = [insert(replay, shard) for shard in range(2)]
    updater = make_updater(replay, "replay")
    shards = np.repeat([0, 1], 10).astype(np.int32)
    updater.submit(Priorities(tf.constant(np.concatenate(keys)), shards, np.arange(1, 21, dtype=np.float32)))
    assert updater.wait(10) and updater.counts() == (2, 0)
    for shard in range(2):
        expected = dict(zip(keys[shard], np.arange(1.0, 11.0) + 10 * shard, strict=True))
        found = priorities_of(replay, shard)
        assert found and all(found[key] == expected[key] for key in found)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_invalid_priorities_are_an_error_and_not_sent(serve, make_updater, value):
    """After a single NaN in Reverb's sums, no item could be sampled anymore."""
    replay = serve([table()])
    keys = insert(replay, 0)
    updater = make_updater(replay, "replay")
    values = np.array([value] + [2.0] * 9, np.float32)
    updater.submit(Priorities(keys, np.zeros(10, np.int32), values))
    for fails in (lambda: updater.wait(10), lambda: updater.submit(update(keys, 0, 3.0)), updater.raise_failure):
        with pytest.raises(CallboardError, match=f"at least 0, but 1 of 10 items got .* {value}: fix"):
            fails()
    assert set(priorities_of(replay, 0).values()) == {1.0}


@pytest.mark.parametrize("values", [np.ones((10, 1)), np.ones((2, 10)), np.ones(9), np.float32(1.0)])
def test_priorities_of_another_shape_are_an_error(serve, make_updater, values):
    replay = serve([table()])
    updater = make_updater(replay, "replay")
    updater.submit(Priorities(insert(replay, 0), np.zeros(10, np.int32), values))
    with pytest.raises(CallboardError, match=r"the shapes key \(10,\), shard \(10,\), priority \(.*: fix what the"):
        updater.wait(10)


def test_removed_items_are_ignored(serve, make_updater):
    replay = serve([table()])
    keys = insert(replay, 0)
    updater = make_updater(replay, "replay")
    updater.submit(update(np.append(keys[:1], np.uint64(7)), 0, 5.0))
    assert updater.wait(10) and updater.counts() == (1, 0)


@pytest.mark.parametrize("with_other_shard", [True, False])
def test_a_shard_that_is_down_blocks_neither_the_caller_nor_other_shards(
    serve, make_updater, unused_address, with_other_shard
):
    served = serve([table()])
    keys = insert(served, 0)
    addresses = [served.address(), unused_address] if with_other_shard else [unused_address]
    updater = make_updater(ReplayHandle(lambda: addresses), "replay", max_pending=4)
    longest = 0.0
    for _ in range(30):
        begun = time.monotonic()
        for shard in range(len(addresses)):
            updater.submit(update(keys, shard, 3.0))
        longest = max(longest, time.monotonic() - begun)
        time.sleep(0.02)
    assert longest < 0.1
    sent, dropped = updater.counts()
    # One call is blocked, and four wait in the queue.
    assert dropped >= 30 - 5
    if with_other_shard:
        assert sent >= 20 and set(priorities_of(served, 0).values()) == {3.0}


@pytest.mark.parametrize("moved", [True, False], ids=["another address", "same address"])
def test_a_replaced_server_is_noticed(serve, make_updater, unused_address, moved):
    """Two servers replace an unreachable one, at another address or, for all that its handle shows, at the same."""
    served = serve([table()])
    keys = insert(served, 0)
    addresses, incarnations = [unused_address if moved else served.address()], ["a"]
    updater = make_updater(ReplayHandle(lambda: addresses, lambda: incarnations), "replay")
    updater.submit(update(keys, 0, 3.0))
    assert updater.wait(0.2) != moved
    sent_before = 0 if moved else 1
    if moved:
        addresses[0] = served.address()
    else:
        incarnations[0] = "b"
    updater.submit(update(keys, 0, 4.0))
    assert updater.wait(20) and updater.counts() == (sent_before + 1, 1 - sent_before)
    assert set(priorities_of(served, 0).values()) == {4.0}
