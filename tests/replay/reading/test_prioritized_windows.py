"""Windows in items of whole batches are sampled in proportion to their own priorities, first and updated ones."""

import functools

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import timestep_streams
from reading import read_batches

from callboard.agents.losses.prioritization import importance_weights
from callboard.data import ItemInfo, Priorities
from callboard.errors import CallboardError
from callboard.replay import PriorityUpdater, ReplayHandle, ShardSaver, TransitionReplay, start_server
from callboard.replay.reading.whole_batches import AwayShards, WeightLookUp, chosen_windows
from callboard.settings.replay_settings import ReplaySettings

ENVS, STEPS, TIMESTEPS, ALPHA = 4, 3, 60, 0.6
BATCH = 1608
"""A multiple of what two shards sample together of an item, for every number."""


def first_priority(record):
    """Of every window another one; by its first timestep, since records are without observations."""
    return (1.5 + np.sin(record.extras["q"][0, :, 0] * 37)) ** 2


def replay_of(together, shards=1, alpha=ALPHA, batch_size=BATCH):
    layout = timestep_streams.layout(ENVS, actors=shards, shards=shards)
    limits = ReplaySettings(size=4000, min_size=8, samples_per_insert=1.0, error_buffer=1e8, sampled_together=together)
    return TransitionReplay(
        layout, limits, batch_size, n_step=STEPS, priority_exponent=alpha, first_priority=first_priority
    )


class Shards:
    """Servers of a replay, with the weights of their windows, as in replay nodes."""

    def __init__(self, replay, folders, restore=False):
        self.replay, self.servers, self.windows = replay, [], []
        for folder in folders:
            weights = replay.window_weights(self.set_priorities(len(self.servers)))
            further = functools.partial(self.restored, weights) if restore else None
            server = start_server(replay.tables(), None, folder, restore_further=further)
            if not restore:
                self.servers.append(server)
            self.windows.append(weights)
        self.handle = ReplayHandle(
            lambda: [f"localhost:{server.port}" for server in self.servers],
            windows=lambda shard, timeout: self.windows[shard],
        )

    def restored(self, weights, server, path):
        self.servers.append(server)
        weights.restore(path)

    def set_priorities(self, shard):
        return lambda table, priorities: self.servers[shard].localhost_client().mutate_priorities(table, priorities)

    def write(self, timesteps=TIMESTEPS):
        """Writes a stream to each shard, of different lengths; returns the weights of all windows."""
        weights = {}
        for shard in range(len(self.servers)):
            records = timestep_streams.stream(ENVS, timesteps // (shard + 1), seed=shard)
            writer = self.replay.writer(self.handle, shard)
            for record in records:
                writer.append(record)
                assert writer.ready(60)
            writer.close()
            for env in range(ENVS):
                for start in timestep_streams.windows(records, env, STEPS):
                    q = records[start].extras["q"][np.newaxis]
                    priority = first_priority(records[start]._replace(extras={"q": q}))[env]
                    weights[shard, env, start] = priority**self.replay.priority_exponent
        return weights

    def batches(self, count):
        """The next batches, after some that were sampled before."""
        data = self.replay.dataset(self.handle, tf.distribute.InputContext())
        return read_batches(data.dataset, count + 6)[6:]

    def stop(self):
        for server in self.servers:
            server.stop()


@pytest.fixture
def shards(tmp_path):
    """Starts the shards of a replay."""
    started = []

    def start(replay, restore=False):
        number = replay.layout.shards
        started.append(Shards(replay, [tmp_path / str(shard) for shard in range(number)], restore))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def windows_of(sample):
    """Shard, environment and first timestep of each sample."""
    env, start = sample.record.observation["body"][0].astype(int).T
    if not isinstance(sample.info.env, tuple):
        np.testing.assert_array_equal(sample.info.env, env)
    return list(zip(sample.info.shard.tolist(), env.tolist(), start.tolist(), strict=True))


def update_some(replay, weights, sample):
    """Sends new priorities of half of a batch, also of windows that were sampled twice."""
    updater = PriorityUpdater(replay.handle, "replay")
    chosen = slice(None, None, 2)
    new = {window: 0.05 + (31 * number % 17) for number, window in enumerate(sorted(set(windows_of(sample)[chosen])))}
    info, values = sample.info, np.array([new[window] for window in windows_of(sample)[chosen]], np.float32)
    updater.submit(Priorities(info.key[chosen], info.shard[chosen], tf.constant(values), info.env[chosen]))
    assert updater.wait(10) and updater.counts().dropped == 0
    updater.close()
    return {**weights, **{window: priority**replay.replay.priority_exponent for window, priority in new.items()}}


def check_frequencies(replay, weights, samples):
    """Chi-square over all windows, of the first, second, ... samples of all items, which are independent."""
    total, together = sum(weights.values()), replay.replay.together
    probability = {window: weight / total for window, weight in weights.items()}
    counts = [dict.fromkeys(weights, 0) for _ in range(together)]
    for sample in replay.batches(-(-samples // BATCH)):
        found = windows_of(sample)
        expected = np.array([probability[window] for window in found])
        np.testing.assert_allclose(sample.info.probability, expected, rtol=1e-5)
        largest = importance_weights(sample.info.probability, sample.info.items, 0.7, tf.reduce_max)
        np.testing.assert_allclose(largest, (expected / expected.min()) ** -0.7, rtol=1e-5)
        for place, of_place in enumerate(counts):
            for window in found[place::together]:
                of_place[window] += 1
    for of_place in counts:
        assert of_place.keys() == weights.keys()
        number = sum(of_place.values())
        expected = np.array([number * probability[window] for window in of_place])
        assert scipy.stats.chisquare(list(of_place.values()), expected * number / expected.sum()).pvalue > 1e-4


@pytest.mark.parametrize(
    "number, together, alpha, samples",
    [
        (2, 3, ALPHA, 20_000),
        *(
            pytest.param(number, together, alpha, 1_000_000, marks=pytest.mark.slow)
            for number, together, alpha in [
                (1, 2, ALPHA),
                (1, ENVS, ALPHA),
                (2, 2, 1.0),
                (2, 3, ALPHA),
                (2, ENVS, ALPHA),
            ]
        ),
    ],
)
def test_each_window_is_sampled_by_its_own_priority(shards, number, together, alpha, samples):
    """Of streams whose episodes end often, of shards of different sizes, before and after updates."""
    replay = shards(replay_of(together, number, alpha))
    weights = replay.write()
    check_frequencies(replay, weights, samples)
    (sample,) = replay.batches(1)
    weights = update_some(replay, weights, sample)
    check_frequencies(replay, weights, samples)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("samples", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", [1, 2])
def test_single_items_are_sampled_by_the_same_probabilities(shards, number, samples):
    """Against which those of windows are compared."""
    replay = shards(replay_of(1, number))
    check_frequencies(replay, replay.write(), samples)


@pytest.mark.parametrize("number", [1, 2, 3, 5, 7])
def test_environments_are_chosen_in_proportion_to_their_weights(number):
    weights = np.array([3.0, 0.0, 0.25, 1.0, 1e-4], np.float32)
    chosen = chosen_windows(tf.constant(np.tile(weights, (50_000, 1))), number).numpy()
    share = weights.astype(np.float64) / weights.sum(dtype=np.float64)
    for place in range(number):
        counts = np.bincount(chosen[:, place], minlength=5)
        assert counts[1] == 0
        assert scipy.stats.chisquare(counts[weights > 0], 50_000 * share[weights > 0]).pvalue > 1e-4
    often = np.stack([np.bincount(row, minlength=5) for row in chosen[:200]])
    assert (often >= np.floor(number * share - 1e-6)).all() and (often <= np.ceil(number * share + 1e-6)).all()


@pytest.mark.slow("daily")
def test_a_shard_that_is_away_is_sampled_by_the_priorities_it_was_written_with(shards):
    replay = shards(replay_of(2))
    weights = replay.write()
    (sample,) = replay.batches(1)
    update_some(replay, weights, sample)

    class Away:
        def window_weights(self, *arguments):
            raise ConnectionError

    replay.windows[0] = Away()
    share = {}
    for sample in replay.batches(2):
        for window, probability in zip(windows_of(sample), sample.info.probability.tolist(), strict=True):
            share.setdefault(window[2], {})[window] = probability
    of_item = max(share.values(), key=len)
    written = sum(weights[window] for window in weights if window[2] == next(iter(of_item))[2])
    assert len(of_item) > 1
    ratios = [probability / (weights[window] / written) for window, probability in of_item.items()]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-5)


def test_a_shard_that_has_not_answered_is_hardly_waited_for(clock):
    answers, calls = [True, False], []

    class Windows:
        def __init__(self, shard, timeout):
            self.shard, self.timeout = shard, timeout

        def window_weights(self, keys, first):
            calls.append((self.shard, self.timeout))
            if not answers[self.shard]:
                raise ConnectionError
            return 2 * np.frombuffer(first, np.float32).reshape(-1, 3)

    look_up = WeightLookUp(ReplayHandle(lambda: ["", ""], windows=Windows), away := AwayShards(clock))
    info = ItemInfo(np.arange(4, dtype=np.uint64), np.array([0, 1, 1, 0], np.int32), np.ones(4), np.ones(4))

    def found():
        return look_up(info, tf.ones((4, 3))).numpy()[:, 0].tolist()

    assert found() == found() == [2, 1, 1, 2]
    assert calls == [(0, 5), (1, 5), (0, 5), (1, 0.5)] and 1 in away and 0 not in away
    answers[1] = True
    assert found() == [2, 2, 2, 2]
    clock.now += 5
    assert found() == [2, 2, 2, 2] and calls[4:] == [(0, 5), (1, 0.5), (0, 5), (1, 5)] and 1 not in away


@pytest.mark.slow
def test_a_restored_shard_samples_by_the_updated_priorities(shards, tmp_path):
    replay = shards(replay_of(2))
    weights = replay.write()
    (sample,) = replay.batches(1)
    weights = update_some(replay, weights, sample)
    # What changes after Reverb's part of the checkpoint, and before ours, is in it, and sampled as such.
    client, save = replay.handle.client(), replay.windows[0].save

    def later(path):
        key = int(sample.info.key[0])
        client.mutate_priorities("replay", {key: 1e6})
        save(path)

    saver = ShardSaver(replay.handle, tmp_path / "0", save_further=later)
    assert saver.save()
    replay.stop()
    restored = shards(replay_of(2), restore=True)
    check_frequencies(restored, weights, 20_000)
    restored.stop()
    with pytest.raises(CallboardError, match="another agent.replay.priority_exponent, 0.6 instead of 0.5"):
        shards(replay_of(2, alpha=0.5), restore=True)
