"""Items of whole batches hold what single ones do, and each window is sampled as if it were by itself."""

import functools

import numpy as np
import pytest
import reverb
import scipy.stats
import tensorflow as tf
import timestep_streams
import tree
from dm_env import specs as dm_specs
from reading import read_all, read_batches

from callboard.agents.losses.prioritization import importance_weights
from callboard.errors import CallboardError
from callboard.replay import (
    ItemWriter,
    ReplayHandle,
    ReplayItem,
    SequenceFormat,
    ShardSaver,
    TransitionReplay,
    WindowFormat,
    WindowWriter,
    latest_checkpoint,
    start_server,
)
from callboard.replay.reading.whole_batches import chosen_number, chosen_windows
from callboard.settings.replay_settings import ReplaySettings
from callboard.specs import EnvironmentSpec

ENVS, STEPS, TIMESTEPS = 4, 3, 60
LAYOUT = timestep_streams.layout(ENVS)


def replay_of(together, shards=1, batch_size=16, **settings):
    layout = timestep_streams.layout(ENVS, actors=shards, shards=shards)
    limits = ReplaySettings(size=4000, min_size=8, samples_per_insert=1.0, error_buffer=1e8, sampled_together=together)
    return TransitionReplay(layout, limits, batch_size, n_step=STEPS, **settings)


def single_items(items, item_format):
    """All samples of items of whole batches, as items of single environments."""
    number, envs = np.nonzero(item_format.weights(items).numpy())
    rows = tf.gather_nd(tf.transpose(items.rows, (0, 2, 1, 3)), np.stack([number, envs], axis=1))
    state = () if isinstance(items.state, tuple) else tf.gather_nd(items.state, np.stack([number, envs], axis=1))
    return ReplayItem(rows, state)


def set_nothing(table, priorities):
    """Sets no priorities."""


def start_of(sample):
    """Environments and timesteps with which the windows of a batch begin, as integers."""
    return sample.record.observation["body"][0].astype(int)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("stack", [1, 3])
def test_they_hold_the_same_windows(serve, stack):
    """Of an actor that begins in the middle of an episode, so that some have no whole stack."""
    records = timestep_streams.stream(ENVS, TIMESTEPS, first=False, seed=3)
    found = []
    for together in (1, 2):
        window_format = WindowFormat(LAYOUT, STEPS, stack, keep_extras=True, returns_discount=0.9, together=together)
        signature = window_format.signature()
        replay = serve([reverb.Table.queue("windows", 10_000, signature=signature)])
        writer = WindowWriter(replay, window_format, "windows")
        for record in records:
            writer.append(record)
            assert writer.ready(60)
        writer.close()
        items, info = read_all(replay, "windows", signature)
        assert len(info.key) == writer.items_written
        if together > 1:
            # The priority counts what may be sampled.
            np.testing.assert_array_equal(info.priority, window_format.weights(items).numpy().sum(axis=1))
            items = single_items(items, window_format)
        sample = tree.map_structure(lambda leaf: leaf.numpy(), window_format.read(items)._replace(state=()))
        order = np.lexsort(start_of(sample).T)
        found.append(tree.map_structure(lambda leaf, order=order: leaf[:, order], sample))
    assert len(start_of(found[0])) > 100
    tree.map_structure(np.testing.assert_array_equal, *found)


def test_frames_are_stored_once_whatever_windows_they_are_in(serve, tmp_path):
    """Stacks of 3 frames in windows of 3 timesteps, one to every timestep, are 5 frames each."""
    rng = np.random.default_rng(0)
    spec = EnvironmentSpec(dm_specs.BoundedArray((20, 20, 1), np.uint8, 0, 255), dm_specs.DiscreteArray(5))
    window_format = WindowFormat(timestep_streams.layout(ENVS, spec=spec), STEPS, stack=3, together=2)
    replay = serve([reverb.Table.queue("windows", 10_000, signature=window_format.signature())])
    writer = WindowWriter(replay, window_format, "windows")
    template = timestep_streams.stream(ENVS, 1)[0]
    timesteps = 80
    for timestep in range(timesteps):
        frames = rng.integers(256, size=(ENVS, 20, 20, 1), dtype=np.uint8)
        writer.append(template._replace(observation=frames, first=np.full(ENVS, timestep == 0)))
        assert writer.ready(60)
    writer.close()
    assert writer.items_written > 70 and ShardSaver(replay, tmp_path / "0").save()
    stored = (latest_checkpoint(tmp_path / "0") / "chunks.tfrecord").stat().st_size
    raw = timesteps * ENVS * 400
    assert 0.9 * raw < stored < 1.2 * raw


def test_sequences_keep_the_states_they_began_with(serve):
    layout = LAYOUT._replace(state={"core": (tf.TensorSpec((2,), tf.float32),)})
    sequence_format = SequenceFormat(layout, 8, together=2)
    replay = serve([reverb.Table.queue("sequences", 10_000, signature=sequence_format.signature())])
    writer = ItemWriter(replay, sequence_format, "sequences", 3)
    for timestep, record in enumerate(timestep_streams.stream(ENVS, 40)):
        state = np.stack([100 * timestep + np.arange(ENVS), np.zeros(ENVS)], axis=1).astype(np.float32)
        writer.append(record, {"core": (state,)})
        assert writer.ready(60)
    writer.close()
    items, _ = read_all(replay, "sequences", sequence_format.signature())
    sample = tree.map_structure(lambda leaf: leaf.numpy(), sequence_format.read(single_items(items, sequence_format)))
    starts = start_of(sample)
    assert set(map(tuple, starts)) == {(env, start) for env in range(ENVS) for start in range(0, 32, 3)}
    np.testing.assert_array_equal(sample.state["core"][0][:, 0], 100 * starts[:, 1] + starts[:, 0])


@pytest.mark.parametrize("number", [1, 3, 4, 6])
def test_each_environment_is_chosen_equally_often(number):
    sampled = np.array([True, False, True, True, False, True])
    chosen = chosen_windows(tf.constant(np.tile(sampled, (20_000, 1)), tf.float32), number).numpy()
    # The first of an item's choices is independent of other items' choices.
    counts = np.bincount(chosen[:, 0], minlength=6)
    assert not counts[~sampled].any() and scipy.stats.chisquare(counts[sampled]).pvalue > 1e-4
    repeats = [np.bincount(row, minlength=6)[sampled] for row in chosen[:100]]
    assert np.max(repeats) == -(-number // 4) and np.min(repeats) == number // 4


@pytest.mark.parametrize(
    "shards, together, samples",
    [
        (2, 2, 20_000),
        *(
            pytest.param(shards, together, 1_000_000, marks=pytest.mark.slow)
            for shards in (1, 2)
            for together in (2, ENVS)
        ),
    ],
)
def test_windows_are_sampled_evenly_whatever_item_they_are_in(serve, shards, together, samples):
    """Chi-square over all windows of streams whose episodes end often, of shards of different sizes."""
    replay = replay_of(together, shards, batch_size=1600)
    handle = serve(*(replay.tables() for _ in range(shards)))
    expected = set()
    for actor in range(shards):
        records = timestep_streams.stream(ENVS, TIMESTEPS // (actor + 1), seed=actor)
        writer = replay.writer(handle, actor)
        for record in records:
            writer.append(record)
            assert writer.ready(60)
        writer.close()
        for env in range(ENVS):
            expected |= {(actor, env, start) for start in timestep_streams.windows(records, env, STEPS)}
    data = replay.dataset(handle, tf.distribute.InputContext())
    assert data.items_per_batch == 1600 / together
    counts, mean = dict.fromkeys(expected, 0), len(expected)
    for sample in read_batches(data.dataset, 5 + samples // 1600)[5:]:
        np.testing.assert_allclose(sample.info.probability, 1 / mean)
        assert (sample.info.items == mean).all()
        np.testing.assert_allclose(importance_weights(sample.info.probability, sample.info.items, beta=0.7), 1)
        # One of each item, which are independent of each other.
        for shard, (env, start) in zip(sample.info.shard[::together], start_of(sample)[::together], strict=True):
            counts[shard, env, start] += 1
    assert counts.keys() == expected
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-4


@pytest.mark.slow("daily")
@pytest.mark.parametrize("updates", [1, 3])
def test_batches_of_one_call_have_different_items(serve, updates):
    replay = replay_of(2, batch_size=8, updates_per_call=updates)
    handle = serve(replay.tables())
    writer = replay.writer(handle, 0)
    for record in timestep_streams.stream(ENVS, 30):
        writer.append(record)
    assert writer.ready(10, max_pending=0)
    (sample,) = read_batches(replay.dataset(handle, tf.distribute.InputContext()).dataset, 1)
    leading = () if updates == 1 else (updates,)
    assert sample.record.reward.shape == (*leading, STEPS, 8) and sample.info.key.shape == (*leading, 8)
    keys = sample.info.key.reshape(-1, 2)
    np.testing.assert_array_equal(keys[:, 0], keys[:, 1])
    writer.close()


def test_a_restored_server_samples_as_before(tmp_path):
    replay = replay_of(2)
    servers = []
    handle = ReplayHandle(lambda: [f"localhost:{servers[-1].port}"])

    def items():
        sample = functools.partial(handle.client().sample, "replay", 400, emit_timesteps=False)
        return {one.info.key: (one.info.priority, np.asarray(one.data[0]).tobytes()) for one in sample()}

    servers.append(start_server(replay.tables(), None, tmp_path))
    writer = replay.writer(handle, 0)
    for record in timestep_streams.stream(ENVS, 20):
        writer.append(record)
    writer.close()
    before = items()
    assert ShardSaver(handle, tmp_path).save()
    servers[-1].stop()
    servers.append(start_server(replay.tables(), None, tmp_path))
    after = items()
    assert len(before) > 10 and before == after
    servers[-1].stop()


def test_the_table_has_its_limits_in_items_of_whole_batches():
    replay = replay_of(2, shards=2, updates_per_call=3)
    single = replay_of(1, shards=2, updates_per_call=3)
    ((info,), (before,)) = ([table.info for table in one.tables()] for one in (replay, single))
    assert (info.max_size, before.max_size) == (500, 2000)
    limiter, single_limiter = info.rate_limiter_info, before.rate_limiter_info
    assert (limiter.min_size_to_sample, single_limiter.min_size_to_sample) == (1, 4)
    # Each of the 4 windows as often as before, by 2 at a time.
    assert limiter.samples_per_insert == single_limiter.samples_per_insert * 4 / 2
    assert limiter.max_diff - limiter.min_diff == (single_limiter.max_diff - single_limiter.min_diff) / 2
    assert info.sampler_options.prioritized.priority_exponent == 1.0 and before.sampler_options.uniform


@pytest.mark.parametrize(
    "item_bytes, batch, envs, number",
    [(100, 256, 16, 16), (100, 256, 20, 16), (100, 64, 16, 8), (100, 256, 1, 1), (100, 4, 4, 1), (28_000, 256, 16, 1)],
)
def test_small_items_are_sampled_together(item_bytes, batch, envs, number):
    assert chosen_number(item_bytes, batch, envs) == number


@pytest.mark.parametrize("settings", [{}, {"priority_exponent": 0.6}])
def test_as_many_are_sampled_together_as_fit_unless_the_setting_says_otherwise(settings):
    assert replay_of(None, **settings).together == 2
    assert replay_of(1, **settings).together == 1 and replay_of(4, **settings).together == 4
    assert replay_of(1, priority_exponent=0.6).window_weights(set_nothing) is None
    assert replay_of(2).window_weights(set_nothing) is None
    assert replay_of(2, priority_exponent=0.6).window_weights(set_nothing) is not None


def test_prioritized_windows_need_a_handle_that_reaches_their_weights():
    handle = ReplayHandle(lambda: ["localhost:1"])
    with pytest.raises(CallboardError, match="set agent.replay.sampled_together to 1"):
        replay_of(2, priority_exponent=0.6).dataset(handle, tf.distribute.InputContext())


@pytest.mark.parametrize(
    "replay, message",
    [
        (replay_of(8), "must be at most envs_per_actor .4. and divide the 16 samples"),
        (replay_of(3), "must be at most envs_per_actor .4. and divide the 16 samples"),
    ],
)
def test_numbers_that_cannot_be_sampled_together_are_refused(replay, message):
    replay_of(4).check()
    with pytest.raises(CallboardError, match=message):
        replay.check()
