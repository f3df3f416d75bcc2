"""Blocks of whole actor batches, as IMPALA reads them: numbered timesteps through a real server."""

import threading
import time

import numpy as np
import pytest
import reverb
import tensorflow as tf
import timestep_streams
import tree
from reading import read_batches

from callboard.data import Record
from callboard.errors import CallboardError
from callboard.replay import (
    BatchReader,
    ReaderStopped,
    SequenceWriter,
    ShardSaver,
    items_per_batch,
    latest_checkpoint,
    queue_dataset,
    queue_table,
    sequence_signature,
)
from callboard.replay import batch_reader as batch_readers

ENVS, LENGTH = 4, 8


def numbered(timestep, envs=ENVS, size=2):
    """A record whose every number tells its timestep and environment."""
    number = 100 * timestep + np.arange(envs)
    return Record(
        observation=np.repeat(number[:, np.newaxis], size, axis=1).astype(np.float32),
        first=number % 7 == 0,
        last=number % 7 == 6,
        action=number.astype(np.int32),
        reward=number.astype(np.float32),
        discount=np.ones(envs, np.float32),
        extras=(),
        version=np.full((envs, 2), timestep, np.int32),
    )


def layout_of(record, state=()):
    spec = tree.map_structure(lambda leaf: tf.TensorSpec(leaf.shape[1:], leaf.dtype), record)
    return timestep_streams.layout(len(record.first))._replace(record=spec, state=state)


def big_queue(layout, length=LENGTH, name="queue"):
    signature = sequence_signature(layout, length, layout.envs_per_actor)
    return reverb.Table.queue(name, 1000, signature=signature)


@pytest.mark.parametrize("period", [LENGTH, LENGTH // 2, 3])
def test_sequences_hold_their_timesteps_and_the_state_they_began_with(serve, period):
    layout = layout_of(numbered(0), state={"core": tf.TensorSpec((3,), tf.float32)})
    table = big_queue(layout)
    replay = serve([table])
    writer = SequenceWriter(replay, layout, "queue", LENGTH, period)
    for timestep in range(60):
        writer.append(numbered(timestep), {"core": np.full((ENVS, 3), timestep, np.float32)})
        assert writer.ready(10, max_pending=0)
    assert table.info.current_size == writer.items_written == (60 - LENGTH - 1) // period + 1
    samples = read_batches(queue_dataset(replay, layout, "queue", LENGTH, ENVS), writer.items_written)
    for number, sample in enumerate(samples):
        timesteps = [numbered(number * period + row) for row in range(LENGTH + 1)]
        expected = tree.map_structure(lambda *leaves: np.stack(leaves), *timesteps)
        for field in Record._fields:
            rows = LENGTH + 1 if field in ("observation", "first", "last") else LENGTH
            np.testing.assert_equal(getattr(sample.record, field), getattr(expected, field)[:rows], err_msg=field)
        np.testing.assert_array_equal(sample.state["core"], np.full((ENVS, 3), number * period, np.float32))


@pytest.mark.parametrize("period", [LENGTH, 2])
def test_no_timestep_is_stored_twice(serve, tmp_path, period):
    rng = np.random.default_rng(0)
    size, timesteps = 2000, 100
    record = numbered(0, size=size)
    layout = layout_of(record)
    table = big_queue(layout)
    replay = serve([table])
    writer = SequenceWriter(replay, layout, "queue", LENGTH, period, max_pending=100)
    for timestep in range(timesteps):
        noise = rng.integers(2**32, size=(ENVS, size), dtype=np.uint32).view(np.float32)
        writer.append(numbered(timestep)._replace(observation=noise), ())
    assert writer.ready(10, max_pending=0) and ShardSaver(replay, tmp_path / "0").save()
    stored = (latest_checkpoint(tmp_path / "0") / "chunks.tfrecord").stat().st_size
    raw = timesteps * ENVS * size * 4
    assert 0.9 * raw < stored < 1.1 * raw


@pytest.mark.parametrize(("batch", "replicas", "per_batch"), [(4, 1, 1), (8, 1, 2), (2, 1, 0.5), (8, 2, 2), (4, 2, 1)])
def test_items_of_a_batch(batch, replicas, per_batch):
    assert items_per_batch(batch, 4, replicas) == per_batch


@pytest.mark.parametrize(
    ("batch", "replicas", "message"), [(6, 1, "set agent.batch_size to 4 or 8"), (7, 2, "a multiple of 2")]
)
def test_a_batch_that_cannot_be_formed_is_refused_in_one_line(batch, replicas, message):
    with pytest.raises(CallboardError, match=message) as raised:
        items_per_batch(batch, 4, replicas)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("share", [2, 4, 8])
def test_blocks_are_joined_or_cut_along_the_batch(serve, share):
    layout = layout_of(numbered(0), state=(tf.TensorSpec((), tf.float32),))
    table = big_queue(layout)
    replay = serve([table])
    writer = SequenceWriter(replay, layout, "queue", LENGTH, LENGTH)
    for timestep in range(8 * LENGTH + 1):
        writer.append(numbered(timestep), (np.full(ENVS, timestep, np.float32),))
        assert writer.ready(10, max_pending=0)
    samples = read_batches(queue_dataset(replay, layout, "queue", LENGTH, share), 12 // share)
    first_rows = np.concatenate([sample.record.observation[0, :, 0] for sample in samples])
    begins = np.repeat(np.arange(0, 100, LENGTH), ENVS)[: len(first_rows)]
    np.testing.assert_array_equal(first_rows, 100 * begins + np.arange(len(first_rows)) % ENVS)
    np.testing.assert_array_equal(np.concatenate([sample.state[0] for sample in samples]), begins)
    for sample in samples:
        assert sample.record.observation.shape == (LENGTH + 1, share, 2)
        # Every environment's timesteps follow each other.
        assert (np.diff(sample.record.observation[..., 0], axis=0) == 100).all()


def test_the_actor_is_held_back_while_the_queue_is_full(serve):
    layout = layout_of(numbered(0))
    signature = sequence_signature(layout, LENGTH, ENVS)
    replay = serve([queue_table("queue", signature, items_per_batch=1, batches=2)])
    writer = SequenceWriter(replay, layout, "queue", LENGTH, LENGTH)
    timestep = 0
    while writer.ready(0.3):
        writer.append(numbered(timestep), ())
        timestep += 1
        assert timestep < 20 * LENGTH, "the writer was never held back"
    written = writer.items_written
    read_batches(queue_dataset(replay, layout, "queue", LENGTH, ENVS), 1)
    assert writer.ready(10)
    assert writer.items_written == written
    writer.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(observation=np.zeros((ENVS, 3), np.float32)), r"observation is float32\(3,\).*float32\(2,\)"),
        (dict(reward=np.zeros(ENVS)), r"reward is float64\(\).*float32\(\)"),
    ],
)
def test_wrong_shapes_are_refused_by_name_before_anything_is_written(serve, change, message):
    layout = layout_of(numbered(0))
    replay = serve([big_queue(layout)])
    writer = SequenceWriter(replay, layout, "queue", LENGTH, LENGTH)
    with pytest.raises(ValueError, match=message):
        writer.append(numbered(0)._replace(**change), ())


def test_a_reader_ends_when_the_run_stops(serve):
    layout = layout_of(numbered(0))
    table = big_queue(layout)
    replay = serve([table])
    stopped = False
    reader = BatchReader(lambda: queue_dataset(replay, layout, "queue", LENGTH, ENVS), lambda: stopped)
    assert reader.poll(0.0) is None
    stopped = True
    with pytest.raises(ReaderStopped):
        next(reader)
    reader.close()


def test_a_reader_continues_with_another_server(serve):
    layout = layout_of(numbered(0))
    replays = []

    def start(first_timestep):
        table = big_queue(layout)
        replays.append(serve([table]))
        writer = SequenceWriter(replays[-1], layout, "queue", LENGTH, LENGTH)
        for timestep in range(first_timestep, first_timestep + 4 * LENGTH + 1):
            writer.append(numbered(timestep), ())
        assert writer.ready(10, max_pending=0)

    start(0)
    reader = BatchReader(
        lambda: queue_dataset(replays[-1], layout, "queue", LENGTH, ENVS),
        lambda: False,
        incarnation=lambda: len(replays),
    )
    assert next(reader).record.reward[0, 0] == 0
    start(1000)
    timesteps = {int(next(reader).record.reward[0, 0]) // 100 for _ in range(3)}
    assert timesteps == {1000, 1000 + LENGTH, 1000 + 2 * LENGTH}
    reader.close()


def test_an_error_of_the_dataset_is_the_readers():
    def broken():
        yield 1
        raise RuntimeError("spoilt")

    reader = BatchReader(broken, lambda: False)
    assert next(reader) == 1
    with pytest.raises(RuntimeError, match="spoilt"):
        next(reader)


def test_readers_that_never_come_back_are_waited_for_together(monkeypatch):
    monkeypatch.setattr(batch_readers, "_END_SECONDS", 0.3)
    may_continue = threading.Event()

    def stuck():
        may_continue.wait()
        yield 1

    readers = [BatchReader(stuck, lambda: False) for _ in range(20)]
    begun = time.monotonic()
    batch_readers._wait_for_threads()
    assert 0.2 < time.monotonic() - begun < 3
    may_continue.set()
    assert [next(one) for one in readers] == [1] * 20
