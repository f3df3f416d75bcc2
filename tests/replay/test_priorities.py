"""New priorities reach the shards that hold the items, and nobody waits for them."""

import socket
import time

import numpy as np
import pytest
import reverb
import tensorflow as tf

from callboard.data import Priorities
from callboard.replay import PriorityUpdater, ReplayHandle


def table():
    return reverb.Table(
        "replay", reverb.selectors.Prioritized(1.0), reverb.selectors.Fifo(), 100, reverb.rate_limiters.MinSize(1)
    )


def fill(replay, shard, count=10):
    for number in range(count):
        replay.client(shard).insert([np.float32(number)], {"replay": 1.0})
    return np.array(sorted(priorities_of(replay, shard)), np.uint64)


def priorities_of(replay, shard):
    samples = replay.client(shard).sample("replay", 300, emit_timesteps=False)
    return {sample.info.key: sample.info.priority for sample in samples}


def test_every_shard_gets_its_own(serve):
    replay = serve([table()], [table()])
    keys = [fill(replay, shard) for shard in range(2)]
    updater = PriorityUpdater(replay, "replay")
    shards = np.repeat([0, 1], 10).astype(np.int32)
    updater.offer(Priorities(tf.constant(np.concatenate(keys)), shards, np.arange(1, 21, dtype=np.float32)))
    assert updater.wait(10) and updater.counts() == (2, 0)
    for shard in range(2):
        expected = dict(zip(keys[shard], np.arange(1.0, 11.0) + 10 * shard, strict=True))
        found = priorities_of(replay, shard)
        assert found and all(found[key] == expected[key] for key in found)
    updater.close()


def test_what_is_no_priority_changes_nothing(serve):
    """One NaN in Reverb's sums, and no item could be drawn any more."""
    replay = serve([table()])
    keys = fill(replay, 0)
    updater = PriorityUpdater(replay, "replay")
    wrong = np.array([np.nan, np.inf, -1.0] + [2.0] * 7, np.float32)
    updater.offer(Priorities(keys, np.zeros(10, np.int32), wrong))
    assert updater.wait(10)
    found = priorities_of(replay, 0)
    assert all(found[key] == (1.0 if index < 3 else 2.0) for index, key in enumerate(keys) if key in found)
    updater.close()


def test_items_that_are_gone_are_passed_over(serve):
    replay = serve([table()])
    keys = fill(replay, 0)
    updater = PriorityUpdater(replay, "replay")
    updater.offer(Priorities(np.append(keys[:1], np.uint64(7)), np.zeros(2, np.int32), np.full(2, 5, np.float32)))
    assert updater.wait(10) and updater.counts() == (1, 0)
    updater.close()


@pytest.mark.parametrize("live", [True, False])
def test_a_shard_that_is_away_keeps_nobody_waiting(serve, live):
    with socket.socket() as closed:
        closed.bind(("", 0))
        nobody = f"localhost:{closed.getsockname()[1]}"
    served = serve([table()])
    keys = fill(served, 0)
    addresses = [served.address(), nobody] if live else [nobody]
    updater = PriorityUpdater(ReplayHandle(lambda: addresses), "replay", max_waiting=4, patience=0.2)
    longest = 0.0
    for _ in range(30):
        begun = time.monotonic()
        for shard in range(len(addresses)):
            updater.offer(Priorities(keys, np.full(10, shard, np.int32), np.full(10, 3.0, np.float32)))
        longest = max(longest, time.monotonic() - begun)
        time.sleep(0.02)
    assert longest < 0.1
    sent, dropped = updater.counts()
    assert dropped >= 20
    if live:
        assert sent >= 20 and set(priorities_of(served, 0).values()) == {3.0}
    updater.close()


def test_a_shard_that_comes_at_another_address_is_found(serve):
    with socket.socket() as closed:
        closed.bind(("", 0))
        addresses = [f"localhost:{closed.getsockname()[1]}"]
    served = serve([table()])
    keys = fill(served, 0)
    updater = PriorityUpdater(ReplayHandle(lambda: addresses), "replay", patience=0.2)
    updater.offer(Priorities(keys, np.zeros(10, np.int32), np.full(10, 3.0, np.float32)))
    assert updater.wait(10) and updater.counts() == (0, 1)
    addresses[0] = served.address()
    updater.offer(Priorities(keys, np.zeros(10, np.int32), np.full(10, 4.0, np.float32)))
    assert updater.wait(20) and updater.counts() == (1, 1)
    assert set(priorities_of(served, 0).values()) == {4.0}
    updater.close()
