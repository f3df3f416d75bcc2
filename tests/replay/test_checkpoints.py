"""What replay holds outlives its server."""

import numpy as np
import pytest
import tensorflow as tf
import tick_streams
from reading import read_all, read_batches

from callboard.data import CallboardError
from callboard.replay import (
    ReplayHandle,
    ReplayLimits,
    WindowWriter,
    latest_checkpoint,
    queue_table,
    replay_table,
    save_shard,
    start_server,
    window_signature,
)
from callboard.replay.drawing import shard_dataset

ENVS, BATCH = 4, 8
LAYOUT = tick_streams.layout(ENVS)
OTHER_LAYOUT = LAYOUT._replace(record=LAYOUT.record._replace(action=tf.TensorSpec((), tf.float32)))
LIMITS = ReplayLimits(size=500, min_size=20, samples_per_insert=2.0, error_buffer=40.0)


def start(directory, limits=LIMITS, steps=2, restore=True, layout=LAYOUT):
    tables = [replay_table("replay", window_signature(layout, steps), layout, limits, BATCH, 0.6)]
    server = start_server(tables, None, directory, restore)
    return server, ReplayHandle(lambda: [f"localhost:{server.port}"]), tables[0]


def info_of(replay):
    """As the server has it: the tables that it was given are others than those that it restores."""
    return replay.client().server_info()["replay"]


def error_of(replay):
    """Inserts times the ratio less samples, and what it may lie between."""
    limiter = info_of(replay).rate_limiter_info
    inserts, samples = limiter.insert_stats.completed, limiter.sample_stats.completed
    return inserts * limiter.samples_per_insert - samples, limiter.min_diff, limiter.max_diff


def write(replay, ticks=100):
    writer = WindowWriter(replay, LAYOUT, "replay", 2, priority=lambda record: 1 + np.abs(record.reward[0]))
    for record in tick_streams.stream(ENVS, ticks):
        writer.append(record)
        writer.ready(0.05)
    writer.close()
    return writer.items_written


def priorities(replay, count):
    """Of the sampled items, by key."""
    samples = replay.client().sample("replay", count, emit_timesteps=False)
    return {sample.info.key: sample.info.priority for sample in samples}


def test_a_restored_shard_holds_what_it_held(tmp_path):
    server, replay, table = start(tmp_path)
    write(replay, ticks=9)
    before = priorities(replay, 30)
    size = info_of(replay).current_size
    assert size > 20 and save_shard(replay)
    server.stop()

    server, replay, table = start(tmp_path)
    assert info_of(replay).current_size == size
    after = priorities(replay, 30)
    for key in before.keys() & after.keys():
        assert before[key] == after[key]
    assert len(before.keys() & after.keys()) > 5
    server.stop()


def test_learning_goes_on_after_a_restore_without_new_inserts(tmp_path):
    """Where the learner had drawn all it might, it may draw again: what it had drawn last was lost with it."""
    server, replay, table = start(tmp_path)
    write(replay, ticks=9)
    while table.can_sample(1):
        priorities(replay, 1)
    error, lowest, _ = error_of(replay)
    assert error < lowest + 1
    assert save_shard(replay)
    server.stop()

    server, replay, _ = start(tmp_path)
    error, lowest, highest = error_of(replay)
    assert error == pytest.approx((lowest + highest) / 2, abs=1)
    dataset = shard_dataset(replay, "replay", window_signature(LAYOUT, 2), 0, BATCH, 0.6)
    assert len(read_batches(dataset, 1)[0].mass) == BATCH
    server.stop()


def test_a_queue_comes_back_as_it_was(tmp_path):
    """What it has given out is gone, so its counts must not be touched."""
    signature = window_signature(LAYOUT, 2)
    server = start_server([queue_table("replay", signature, 20)], None, tmp_path)
    replay = ReplayHandle(lambda: [f"localhost:{server.port}"])
    write(replay, ticks=6)
    read_batches(shard_dataset(replay, "replay", signature, 0, 1, 0.0), 3)
    assert save_shard(replay)
    limits = replay.client().server_info()["replay"].rate_limiter_info
    server.stop()
    server = start_server([queue_table("replay", signature, 20)], None, tmp_path)
    assert info_of(replay).rate_limiter_info.sample_stats.completed == limits.sample_stats.completed
    left = limits.insert_stats.completed - limits.sample_stats.completed
    assert info_of(replay).current_size == left == len(read_all(replay, "replay", signature)[1].key)
    server.stop()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (dict(limits=ReplayLimits(600, 20, 2.0)), "another max_size, 500 instead of 600"),
        (dict(limits=ReplayLimits(500, 20, 3.0)), "another samples_per_insert, 2 instead of 3"),
        (dict(steps=3), "another signature"),
        # The same number of bytes, and another meaning.
        (
            dict(layout=OTHER_LAYOUT),
            "signature",
        ),
    ],
    ids=["size", "ratio", "steps", "meaning"],
)
def test_other_settings_are_refused_by_name(tmp_path, changed, message):
    server, replay, _ = start(tmp_path)
    write(replay, ticks=9)
    assert save_shard(replay)
    server.stop()
    with pytest.raises(CallboardError, match=message) as raised:
        start(tmp_path, **changed)
    assert "\n" not in str(raised.value)
    # And what was there is there still.
    server, replay, _ = start(tmp_path)
    assert info_of(replay).current_size > 0
    server.stop()


def test_a_new_beginning_removes_what_was_there(tmp_path):
    server, replay, _ = start(tmp_path)
    write(replay, ticks=9)
    assert save_shard(replay)
    server.stop()
    server, replay, _ = start(tmp_path, ReplayLimits(900, 20, 2.0), restore=False)
    assert info_of(replay).current_size == 0 and latest_checkpoint(tmp_path) is None
    server.stop()


def test_only_the_newest_checkpoint_is_kept(tmp_path):
    server, replay, _ = start(tmp_path)
    write(replay, ticks=9)
    for _ in range(3):
        assert save_shard(replay)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    assert latest_checkpoint(tmp_path).parent == tmp_path / "checkpoints"
    server.stop()


def test_a_checkpoint_of_a_shard_that_is_away_is_given_up():
    assert not save_shard(ReplayHandle(lambda: ["localhost:1"]), timeout=0.5)


def test_a_checkpoint_that_is_not_whole_is_not_restored(tmp_path):
    server, replay, _ = start(tmp_path)
    server.stop()
    (tmp_path / "checkpoints" / "2020-01-01T00:00:00+00:00").mkdir()
    assert latest_checkpoint(tmp_path) is None
    server, replay, _ = start(tmp_path)
    assert info_of(replay).current_size == 0
    server.stop()
