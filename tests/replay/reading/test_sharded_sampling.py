"""Batches from several shards, in proportion to their priority mass, also while a shard is silent."""

import time

import numpy as np
import pytest
import tree

from callboard.data import ItemInfo
from callboard.replay.reading.sampling import SampledItems
from callboard.replay.reading.sharded_sampling import ShardedSampler, split_batch
from callboard.replay.reading.whole_batches import AwayShards


@pytest.mark.parametrize("masses", [[1, 1], [10, 1, 0], [0.3, 0.3, 0.4], [1e-9, 5]])
def test_parts_of_a_batch_are_exact_on_average(masses):
    parts = np.array([split_batch(7, np.array(masses), (draw + 0.5) / 1000) for draw in range(1000)])
    assert (parts.sum(axis=1) == 7).all() and (parts >= 0).all()
    np.testing.assert_allclose(parts.mean(axis=0), 7 * np.array(masses) / np.sum(masses), atol=0.01)


class ScriptedReader:
    """Blocks of numbered items of one shard, while it is not silent."""

    def __init__(self, shard, mass):
        self.shard, self.mass, self.silent, self.number = shard, mass, False, 0

    def poll(self, timeout):
        if self.silent:
            return None
        keys = np.arange(self.number, self.number + 3, dtype=np.uint64)
        self.number += 3
        info = ItemInfo(keys, np.full(3, self.shard), np.full(3, 0.5), np.full(3, 10))
        return SampledItems(keys, info, np.full(3, self.mass))


def test_a_silent_shard_is_left_out_until_it_delivers_again():
    readers = [ScriptedReader(0, 1.0), ScriptedReader(1, 3.0)]
    away = AwayShards()
    sampler = ShardedSampler(readers, 8, away, patience=0.1)
    both = sampler.sample()
    assert np.bincount(both.info.shard).tolist() == [2, 6]
    np.testing.assert_allclose(both.info.probability, 0.5 * np.array([0.25, 0.75])[both.info.shard])
    assert (both.info.items == 20).all()
    readers[1].silent = True
    alone = [sampler.sample() for _ in range(3)][-1]
    assert 1 in away
    assert (alone.info.shard == 0).all() and (alone.info.items == 10).all()
    np.testing.assert_allclose(alone.info.probability, 0.5)
    readers[1].silent = False
    assert np.bincount(sampler.sample().info.shard).tolist() == [2, 6]


def test_a_batch_does_not_wait_for_a_shard_that_is_known_to_be_away(clock):
    readers, away = [ScriptedReader(0, 1.0), ScriptedReader(1, 3.0)], AwayShards(clock)
    sampler = ShardedSampler(readers, 8, away, patience=60.0)
    sampler.sample()
    readers[1].silent = True
    away.add(1)
    begun = time.monotonic()
    alone = [sampler.sample() for _ in range(3)][-1]
    assert (alone.info.shard == 0).all() and time.monotonic() - begun < 10
    readers[1].silent = False
    assert np.bincount(sampler.sample().info.shard).tolist() == [2, 6] and 1 not in away


def test_no_item_of_a_block_is_lost_or_given_twice():
    sampler = ShardedSampler([ScriptedReader(0, 1.0), ScriptedReader(1, 2.0)], 7, patience=0.1)
    batches = [sampler.sample() for _ in range(50)]
    for shard in range(2):
        keys = np.concatenate([batch.info.key[batch.info.shard == shard] for batch in batches])
        np.testing.assert_array_equal(keys, np.arange(len(keys)))
    assert all(tree.map_structure(len, batch.info.key) == 7 for batch in batches)
