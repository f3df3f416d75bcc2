"""A replay server: its port, its files, and what it begins with."""

import tempfile

import numpy as np
import pytest
import reverb
import tensorflow as tf

from callboard.errors import CallboardError
from callboard.replay import ReplayHandle, ShardSaver, start_server


@pytest.fixture
def start(tmp_path):
    """Starts a server with a table of numbers in `tmp_path / "shard"`, and stops the one before."""
    servers = []

    def start_again(size=10, **options):
        for server in servers:
            server.stop()
        table = reverb.Table.queue("numbers", size, signature=tf.TensorSpec((), tf.int64))
        servers[:] = [start_server([table], None, tmp_path / "shard", **options)]
        return ReplayHandle(lambda: [f"localhost:{servers[0].port}"])

    yield start_again
    for server in servers:
        server.stop()


def insert(replay, count):
    with replay.client().trajectory_writer(1) as writer:
        for number in range(count):
            writer.append(np.int64(number))
            writer.create_item("numbers", 1.0, writer.history[-1])
        writer.flush()


def size(replay):
    return replay.client().server_info()["numbers"].current_size


def test_a_server_begins_with_its_newest_checkpoint_unless_it_begins_anew(start, tmp_path):
    replay = start()
    insert(replay, 3)
    assert ShardSaver(replay, tmp_path / "shard").save()
    insert(replay, 2)
    assert size(replay) == 5
    assert size(start()) == 3
    assert size(start(restore=False)) == 0
    assert size(start()) == 0


def test_no_file_lies_outside_of_the_directory_of_the_shard(start, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    replay = start()
    insert(replay, 1)
    assert ShardSaver(replay, tmp_path / "shard").save()
    start()
    assert list(temporary.iterdir()) == []
    # What the server has read when it started is not kept twice.
    assert not (tmp_path / "shard" / "restored").exists()


def test_tables_with_other_settings_are_refused(start, tmp_path):
    replay = start()
    insert(replay, 1)
    assert ShardSaver(replay, tmp_path / "shard").save()
    with pytest.raises(CallboardError, match="another max_size, 10 instead of 20"):
        start(size=20)
    assert not (tmp_path / "shard" / "restored").exists()


def test_a_damaged_checkpoint_is_reported_and_left_out(start, tmp_path):
    replay, notices = start(), []
    insert(replay, 1)
    saved = ShardSaver(replay, tmp_path / "shard").save()
    (saved / "chunks.tfrecord").write_bytes(b"")
    assert size(start(notify=notices.append)) == 0
    assert len(notices) == 1 and "is damaged" in notices[0] and "\n" not in notices[0]


def test_a_server_listens_on_the_given_port(tmp_path):
    first = start_server([reverb.Table.queue("first", 1)], None, tmp_path / "first")
    port = first.port
    first.stop()
    second = start_server([reverb.Table.queue("second", 1)], port, tmp_path / "second")
    assert second.port == port
    second.stop()
