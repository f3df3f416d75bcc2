"""What replay holds outlives its server."""

import dataclasses
import errno
import pathlib
import shutil
import time

import numpy as np
import pytest
import reverb
import tensorflow as tf
import timestep_streams
from open_door import free_port
from reading import read_all, read_batches
from slow_cases import slow_but

from callboard.errors import CallboardError
from callboard.replay import (
    ReplayHandle,
    ReplayNotSaved,
    ShardSaver,
    WindowFormat,
    WindowWriter,
    latest_checkpoint,
    queue_table,
    replay_table,
    start_server,
)
from callboard.replay.reading.sampling import SampledTable, shard_dataset
from callboard.settings.replay_settings import ReplaySettings

ENVS, BATCH = 4, 8
LAYOUT = timestep_streams.layout(ENVS)
OTHER_LAYOUT = LAYOUT._replace(record=LAYOUT.record._replace(action=tf.TensorSpec((), tf.float32)))
LIMITS = ReplaySettings(size=500, min_size=20, samples_per_insert=2.0, error_buffer=40.0)


def start(directory, limits=LIMITS, steps=2, restore=True, layout=LAYOUT, notify=print, port=None):
    tables = [replay_table("replay", WindowFormat(layout, steps).signature(), layout, limits, BATCH, 0.6)]
    server = start_server(tables, port, directory, restore, notify)
    return server, ReplayHandle(lambda: [f"localhost:{server.port}"]), tables[0]


def info_of(replay):
    """As the server has it: the tables that it was given are others than those that it restores."""
    return replay.client().server_info()["replay"]


def left(directory):
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


def error_of(replay):
    """Inserts times the ratio less samples, and what it may lie between."""
    limiter = info_of(replay).rate_limiter_info
    inserts, samples = limiter.insert_stats.completed, limiter.sample_stats.completed
    return inserts * limiter.samples_per_insert - samples, limiter.min_diff, limiter.max_diff


def write(replay, timesteps=100):
    writer = WindowWriter(replay, WindowFormat(LAYOUT, 2), "replay", lambda record: 1 + np.abs(record.reward[0]))
    for record in timestep_streams.stream(ENVS, timesteps):
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
    write(replay, timesteps=9)
    before = priorities(replay, 30)
    size = info_of(replay).current_size
    assert size > 20 and ShardSaver(replay, tmp_path).save()
    server.stop()

    server, replay, table = start(tmp_path)
    assert info_of(replay).current_size == size
    after = priorities(replay, 30)
    for key in before.keys() & after.keys():
        assert before[key] == after[key]
    assert len(before.keys() & after.keys()) > 5
    server.stop()


@pytest.mark.slow("daily")
@pytest.mark.parametrize("buffer", [40.0, None])
def test_learning_continues_after_a_restore_without_new_inserts(tmp_path, buffer):
    """A learner that had sampled as much as the ratio allowed may sample again: its last samples were lost with it."""
    limits = dataclasses.replace(LIMITS, error_buffer=buffer)
    server, replay, table = start(tmp_path, limits)
    write(replay, timesteps=9)
    while table.can_sample(1):
        priorities(replay, 1)
    error, lowest, _ = error_of(replay)
    assert error < lowest + 1
    assert ShardSaver(replay, tmp_path).save()
    server.stop()

    server, replay, _ = start(tmp_path, limits)
    error, lowest, highest = error_of(replay)
    assert error == pytest.approx((lowest + highest) / 2, abs=1)
    dataset = shard_dataset(SampledTable(replay, "replay", WindowFormat(LAYOUT, 2).signature(), 0.6), 0, BATCH)
    assert len(read_batches(dataset, 1)[0].mass) == BATCH
    server.stop()


def test_a_queue_comes_back_as_it_was(tmp_path):
    """What it has given out is gone, so its counts must not be touched."""
    signature = WindowFormat(LAYOUT, 2).signature()
    server = start_server([queue_table("replay", signature, 20)], None, tmp_path)
    replay = ReplayHandle(lambda: [f"localhost:{server.port}"])
    write(replay, timesteps=6)
    read_batches(shard_dataset(SampledTable(replay, "replay", signature), 0, 1), 3)
    # The reader may take some more meanwhile.
    before = info_of(replay).rate_limiter_info
    assert ShardSaver(replay, tmp_path).save()
    after = info_of(replay).rate_limiter_info
    server.stop()
    server = start_server([queue_table("replay", signature, 20)], None, tmp_path)
    limits = info_of(replay).rate_limiter_info
    assert before.sample_stats.completed <= limits.sample_stats.completed <= after.sample_stats.completed
    left = limits.insert_stats.completed - limits.sample_stats.completed
    assert info_of(replay).current_size == left == len(read_all(replay, "replay", signature)[1].key)
    server.stop()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            dict(limits=dataclasses.replace(LIMITS, size=600)),
            "another max_size, 500 instead of 600",
        ),
        (
            dict(limits=dataclasses.replace(LIMITS, samples_per_insert=3.0)),
            "another samples_per_insert, 2 instead of 3",
        ),
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
    write(replay, timesteps=9)
    assert ShardSaver(replay, tmp_path).save()
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
    write(replay, timesteps=9)
    assert ShardSaver(replay, tmp_path).save()
    server.stop()
    server, replay, _ = start(tmp_path, ReplaySettings(size=900, min_size=20, samples_per_insert=2.0), restore=False)
    assert info_of(replay).current_size == 0 and latest_checkpoint(tmp_path) is None
    server.stop()


def test_the_newest_two_checkpoints_are_kept(tmp_path):
    server, replay, _ = start(tmp_path)
    write(replay, timesteps=9)
    saver = ShardSaver(replay, tmp_path)
    for number in range(1, 5):
        assert saver.save().name == f"{number:012d}"
    assert left(tmp_path) == ["000000000003", "000000000004"]
    assert latest_checkpoint(tmp_path).name == "000000000004"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "settings.json", "written"]
    assert not list((tmp_path / "written").iterdir())
    server.stop()


def test_a_checkpoint_of_a_shard_that_is_away_is_given_up(tmp_path):
    saver = ShardSaver(ReplayHandle(lambda: ["localhost:1"]), tmp_path)
    with pytest.raises(ReplayNotSaved):
        saver.save(timeout=0.2)


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    """A shard's directory with a checkpoint of 8 timesteps and one of 16, and how many items each has."""
    directory, items = tmp_path_factory.mktemp("two"), []
    server, replay, _ = start(directory)
    for _ in range(2):
        write(replay, timesteps=8)
        ShardSaver(replay, directory).save()
        items.append(info_of(replay).current_size)
    server.stop()
    return directory, items


FILES = ["DONE", "chunks.tfrecord", "items.tfrecord", "manifest.json", "settings.json", "tables.tfrecord"]


def truncate(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


DAMAGES = {"truncated": truncate, "emptied": lambda path: path.write_bytes(b""), "missing": pathlib.Path.unlink}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, how",
    slow_but(
        [(name, how) for name in FILES for how in DAMAGES if name != "DONE" or how == "missing"],
        *((name, "missing") for name in FILES),
        *(("items.tfrecord", how) for how in DAMAGES),
        *((name, "truncated") for name in FILES[1:]),
    ),
)
def test_the_one_before_a_damaged_checkpoint_is_restored(two_checkpoints, tmp_path, name, how):
    source, items = two_checkpoints
    shutil.copytree(source, tmp_path, dirs_exist_ok=True)
    assert sorted(path.name for path in latest_checkpoint(tmp_path).iterdir()) == FILES
    DAMAGES[how](latest_checkpoint(tmp_path) / name)
    said = []
    # Reverb itself would end this process.
    server, replay, _ = start(tmp_path, notify=said.append)
    assert info_of(replay).current_size == items[0]
    (line,) = said
    assert line.startswith(f"the checkpoint 000000000002 of replay shard {tmp_path.name} is damaged ({name} ")
    assert left(tmp_path) == ["000000000001", "damaged-000000000002"]
    assert not (tmp_path / "restored").exists()
    server.stop()
    # The next one is newer than the damaged one, and the one that was restored is as it was.
    server, replay, _ = start(tmp_path)
    assert ShardSaver(replay, tmp_path).save().name == "000000000003"
    assert info_of(replay).current_size == items[0]
    server.stop()


def test_without_a_checkpoint_that_is_whole_replay_begins_empty(two_checkpoints, tmp_path):
    shutil.copytree(two_checkpoints[0], tmp_path, dirs_exist_ok=True)
    for number in (1, 2):
        (tmp_path / "checkpoints" / f"{number:012d}" / "chunks.tfrecord").write_bytes(b"")
    said = []
    server, replay, _ = start(tmp_path, notify=said.append)
    assert info_of(replay).current_size == 0 and len(said) == 2
    server.stop()


def test_names_show_which_is_newer_in_every_time_zone(two_checkpoints, tmp_path, monkeypatch):
    shutil.copytree(two_checkpoints[0], tmp_path, dirs_exist_ok=True)
    for zone in ("Pacific/Kiritimati", "Pacific/Midway"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        server, replay, _ = start(tmp_path)
        write(replay, timesteps=4)
        ShardSaver(replay, tmp_path).save()
        size = info_of(replay).current_size
        server.stop()
    monkeypatch.undo()
    time.tzset()
    server, replay, _ = start(tmp_path)
    assert info_of(replay).current_size == size > two_checkpoints[1][1]
    server.stop()


def test_a_checkpoint_that_a_disk_does_not_take_leaves_those_before_it(two_checkpoints, tmp_path, monkeypatch):
    shutil.copytree(two_checkpoints[0], tmp_path, dirs_exist_ok=True)
    server, replay, _ = start(tmp_path)
    saver = ShardSaver(replay, tmp_path)

    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("callboard.replay.servers.checkpoints.write_manifest", fail)
        with pytest.raises(ReplayNotSaved, match="No space left on device"):
            saver.save()
    assert left(tmp_path) == ["000000000001", "000000000002"]
    assert not list((tmp_path / "written").iterdir())
    assert saver.save().name == "000000000003"
    server.stop()


def test_a_server_that_could_not_be_reached_just_before_is_saved(tmp_path):
    port = free_port()
    # gRPC tries again after a second or more; until then, calls of this process to the port may fail at once.
    early = reverb.Client(f"localhost:{port}")
    with pytest.raises(reverb.errors.DeadlineExceededError):
        early.server_info(timeout=1)
    server, replay, _ = start(tmp_path, port=port)
    assert ShardSaver(replay, tmp_path).save().name == "000000000001"
    server.stop()
