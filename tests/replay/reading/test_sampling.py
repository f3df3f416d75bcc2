"""Frequencies of sampling, and the weights that correct for them, with real servers."""

import functools
import time

import numpy as np
import pytest
import reverb
import scipy.stats
import tensorflow as tf
import timestep_streams
from reading import read_batches
from slow_cases import slow_but

from callboard.agents.losses.prioritization import importance_weights
from callboard.data import Priorities
from callboard.replay import Elements, PriorityUpdater, WindowFormat, WindowWriter, sampled_dataset

ALPHA = 0.6


def table(layout, exponent=ALPHA, size=10_000):
    return reverb.Table(
        "replay",
        reverb.selectors.Prioritized(exponent) if exponent else reverb.selectors.Uniform(),
        reverb.selectors.Fifo(),
        size,
        reverb.rate_limiters.MinSize(1),
        signature=WindowFormat(layout, 1).signature(),
    )


def fill(replay, layout, timesteps, priority, shard=0, seed=0):
    """One window to every timestep of one long episode in each environment."""
    writer = WindowWriter(replay, WindowFormat(layout, 1), "replay", priority, shard)
    for record in timestep_streams.stream(layout.envs_per_actor, timesteps, seed=seed, longest=timesteps * 10):
        # Episodes without end, so that every timestep but the newest begins a window.
        never = np.zeros_like(record.first)
        writer.append(record._replace(first=never, last=never, discount=np.ones_like(record.discount)))
        assert writer.ready(60)
    writer.close()
    return writer.items_written


def dataset(replay, layout, batch, exponent=ALPHA):
    return sampled_dataset(replay, WindowFormat(layout, 1), "replay", batch, exponent)


def test_items_are_sampled_in_proportion_to_their_updated_priorities(serve):
    """Chi-square over 1,000 items, whose first priorities are all the same."""
    layout = timestep_streams.layout(envs=10)
    replay = serve([table(layout)])
    assert fill(replay, layout, 101, None) == 1000
    keys = set()
    while len(keys) < 1000:
        keys |= {sample.info.key for sample in replay.client().sample("replay", 1000, emit_timesteps=False)}
    keys = np.array(sorted(keys), np.uint64)
    priorities = np.random.default_rng(0).gamma(0.5, size=1000).astype(np.float32) + 0.01
    updater = PriorityUpdater(replay, "replay")
    for part in range(0, 1000, 100):
        chosen = slice(part, part + 100)
        updater.submit(Priorities(keys[chosen], np.zeros(100, np.int32), tf.constant(priorities[chosen])))
    assert updater.wait(10) and updater.counts() == (10, 0)
    updater.close()

    probability = dict(zip(keys, priorities**ALPHA / np.sum(priorities**ALPHA), strict=True))
    sampled = []
    for info in (sample.info for sample in read_batches(dataset(replay, layout, 1000), 60)[5:]):
        np.testing.assert_allclose(info.probability, [probability[key] for key in info.key], rtol=1e-4)
        assert (info.items == 1000).all() and (info.shard == 0).all()
        sampled.append(info.key)
    found, counts = np.unique(np.concatenate(sampled), return_counts=True)
    observed = dict(zip(found, counts, strict=True))
    expected = np.array([probability[key] for key in keys]) * counts.sum()
    assert expected.min() > 2
    result = scipy.stats.chisquare([observed.get(key, 0) for key in keys], expected * counts.sum() / expected.sum())
    assert result.pvalue > 1e-4


@pytest.mark.slow("daily")
@pytest.mark.parametrize("updates_per_call, elements", [(1, 3), (8, 2)])
def test_no_more_is_sampled_ahead_than_a_few_elements(serve, updates_per_call, elements):
    """Samples that wait for the learner were sampled by old priorities."""
    layout = timestep_streams.layout(envs=10)
    replay = serve([table(layout)])
    fill(replay, layout, 101, None)
    sampled = sampled_dataset(replay, WindowFormat(layout, 1), "replay", 128, ALPHA, updates_per_call=updates_per_call)
    batches = iter(Elements(sampled))
    for _ in range(5):
        next(batches)
        time.sleep(0.2)
    completed = replay.client().server_info()["replay"].rate_limiter_info.sample_stats.completed
    assert completed / 128 / updates_per_call - 5 < elements + 0.1


def test_an_exponent_of_zero_draws_evenly(serve):
    layout = timestep_streams.layout(envs=10)
    replay = serve([table(layout, exponent=0)])
    assert fill(replay, layout, 11, lambda record: 1 + np.abs(record.reward[0])) == 100
    infos = [sample.info for sample in read_batches(dataset(replay, layout, 500, exponent=0), 20)]
    _, counts = np.unique(np.concatenate([info.key for info in infos]), return_counts=True)
    assert len(counts) == 100 and scipy.stats.chisquare(counts).pvalue > 1e-4
    np.testing.assert_allclose(infos[0].probability, 0.01)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("shards", slow_but([1, 2], 2))
def test_importance_weights_undo_the_priorities(serve, shards):
    """The weighted mean of the samples is the plain mean of the items, also with shards that differ tenfold."""
    layout = timestep_streams.layout(envs=10, actors=shards, shards=shards)
    replay = serve(*([table(layout)] for _ in range(shards)))
    everything = []

    def priority(scale, record):
        everything.append(record.reward[0])
        # What has a high priority has a high reward: the plain mean of the draws is far off.
        return scale * np.exp(record.reward[0])

    for shard in range(shards):
        # The second shard's priorities are ten times those of the first, and it holds half as many items.
        timesteps = 61 if shard == 0 else 31
        fill(replay, layout, timesteps, functools.partial(priority, 10.0**shard), shard, seed=shard)
    total = np.concatenate(everything)
    rewards, weights, shards_sampled = [], [], []
    for sample in read_batches(dataset(replay, layout, 250), 120):
        weight = importance_weights(sample.info.probability, sample.info.items, beta=1.0).numpy()
        rewards.append(np.mean(weight * sample.record.reward[0]))
        weights.append(np.mean(weight))
        shards_sampled.append(np.mean(sample.info.shard))
        assert (sample.info.items == len(total)).all()
    assert abs(np.mean(np.concatenate(everything))) < 0.2
    error = np.std(rewards) / np.sqrt(len(rewards))
    assert abs(np.mean(rewards) - total.mean()) < 4 * error and error < 0.02
    assert np.mean(weights) == pytest.approx(1, abs=0.02)
    if shards == 2:
        masses = [
            np.sum((10.0**shard * np.exp(part)) ** ALPHA) for shard, part in enumerate((total[:600], total[600:]))
        ]
        assert np.mean(shards_sampled) == pytest.approx(masses[1] / sum(masses), abs=0.01)


@pytest.mark.slow("daily")
def test_every_replica_has_its_share(serve):
    """Through `distribute_datasets_from_function`, as the learner reads."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    layout = timestep_streams.layout(envs=5, actors=2, shards=2)
    replay = serve([table(layout)], [table(layout)])
    for shard in range(2):
        fill(replay, layout, 20, None, shard)
    distributed = strategy.distribute_datasets_from_function(lambda context: dataset(replay, layout, 8))
    sample = next(iter(distributed))
    assert sample.record.reward.shape == (1, 8) and sample.record.observation["eye"].shape == (2, 8, 2, 3, 2)
    assert set(sample.info.shard.numpy()) == {0, 1}
