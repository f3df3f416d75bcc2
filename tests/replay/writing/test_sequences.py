"""Blocks of whole actor batches, as IMPALA reads them: numbered timesteps through a real server."""

import itertools
import threading

import numpy as np
import pytest
import reverb
import tensorflow as tf
import timestep_streams
import tree
from dm_env import specs as dm_specs
from numbered_blocks import ENVS, LENGTH, big_queue, layout_of, numbered
from reading import read_batches
from slow_cases import slow_but

from callboard.data import Record, Timestep
from callboard.replay import (
    SequenceWriter,
    ShardSaver,
    initial_frames,
    latest_checkpoint,
    push_frames,
    queue_dataset,
    queue_table,
    sequence_signature,
    stacked_spec,
)
from callboard.specs import EnvironmentSpec


@pytest.mark.slow("daily")
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
    writer = SequenceWriter(replay, layout, "queue", LENGTH, period)
    for timestep in range(timesteps):
        noise = rng.integers(2**32, size=(ENVS, size), dtype=np.uint32).view(np.float32)
        writer.append(numbered(timestep)._replace(observation=noise), ())
    assert writer.ready(10, max_pending=0) and ShardSaver(replay, tmp_path / "0").save()
    stored = (latest_checkpoint(tmp_path / "0") / "chunks.tfrecord").stat().st_size
    raw = timesteps * ENVS * size * 4
    assert 0.9 * raw < stored < 1.1 * raw


def test_the_actor_is_held_back_while_the_queue_is_full(serve):
    layout = layout_of(numbered(0))
    signature = sequence_signature(layout, LENGTH, ENVS)
    replay = serve([queue_table("queue", signature, size=3)])
    writer = SequenceWriter(replay, layout, "queue", LENGTH, LENGTH)
    timestep = 0
    while writer.ready(0.3):
        assert not writer.take_waited_for_room()
        writer.append(numbered(timestep), ())
        timestep += 1
        assert timestep < 20 * LENGTH, "the writer was never held back"
    # Where the queue took all at once, one was on its way when the next was begun.
    written = writer.items_written
    assert written in (3, 3 + 1, 3 + 2)
    # The first sequence of a writer is sent at once, and does not wait either.
    late = SequenceWriter(replay, layout, "queue", LENGTH, LENGTH)
    thread = threading.Thread(
        target=lambda: [late.append(numbered(step), ()) for step in range(LENGTH + 1)], daemon=True
    )
    thread.start()
    thread.join(20)
    assert not thread.is_alive() and late.items_written == 1
    late.close()
    # All of its own, whatever is read ahead: one of the other's may be left.
    read_batches(queue_dataset(replay, layout, "queue", LENGTH, ENVS), written)
    assert writer.ready(60)
    assert writer.items_written == written
    assert writer.take_waited_for_room() and not writer.take_waited_for_room()
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


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "first, repeats", slow_but(itertools.product([True, False], repeat=2), (True, False), (False, True))
)
def test_stacks_are_those_of_the_policy_and_each_frame_is_stored_once(serve, tmp_path, repeats, first):
    """Episodes end and begin inside of sequences, and the writer may begin inside of an episode."""
    envs, stack, earlier = 3, 3, 0 if first else 4
    records = timestep_streams.stream(envs, 80)
    frames = initial_frames(stacked_spec(timestep_streams.SPEC, stack).observation, stack, envs)
    layout = timestep_streams.layout(envs)._replace(
        state={"core": tf.TensorSpec((), tf.float32), "frames": tree.map_structure(_of_one, frames)}
    )
    period = LENGTH + repeats
    signature = sequence_signature(layout, LENGTH, envs, stack, repeats)
    replay = serve([reverb.Table.queue("queue", 1000, signature=signature)])
    writer = SequenceWriter(replay, layout, "queue", LENGTH, period, stack=stack)
    written: list[int] = []
    for timestep, record in enumerate(records):
        state = {"core": np.full(envs, timestep, np.float32), "frames": frames}
        output = Timestep(record.observation, record.reward, record.discount, record.first, record.last)
        _, frames = push_frames(output, frames, stack)
        if timestep < earlier:
            continue
        again = repeats and (timestep - earlier) % LENGTH == 0 and timestep > earlier
        for _ in range(1 + again):
            writer.append(record, state)
            written.append(timestep)
    assert writer.ready(10, max_pending=0)
    samples = read_batches(
        queue_dataset(replay, layout, "queue", LENGTH, envs, stack=stack, repeats=repeats), writer.items_written
    )
    assert len(samples) >= 8
    for number, sample in enumerate(samples):
        begin = earlier + number * LENGTH
        np.testing.assert_array_equal(sample.state["core"], np.full(envs, begin))
        assert sample.state["frames"] == ()
        for row in range(LENGTH + 1):
            for env in range(envs):
                expected = timestep_streams.stacked(records, env, begin + row, stack)
                np.testing.assert_array_equal(sample.record.observation["eye"][row, env], expected)
            np.testing.assert_array_equal(
                sample.record.observation["body"][row], records[begin + row].observation["body"]
            )


@pytest.mark.parametrize("repeats", [False, True])
def test_stacks_take_no_more_room_than_frames(serve, tmp_path, repeats):
    rng = np.random.default_rng(0)
    spec = EnvironmentSpec(dm_specs.BoundedArray((20, 20, 1), np.uint8, 0, 255), dm_specs.DiscreteArray(5))
    layout, stack, timesteps = timestep_streams.layout(ENVS, spec=spec), 4, 90
    state = initial_frames(stacked_spec(spec, stack).observation, stack, ENVS)
    layout = layout._replace(state=tree.map_structure(_of_one, state))
    signature = sequence_signature(layout, LENGTH, ENVS, stack, repeats)
    replay = serve([reverb.Table.queue("queue", 1000, signature=signature)])
    writer = SequenceWriter(replay, layout, "queue", LENGTH, LENGTH + repeats, stack=stack)
    template = timestep_streams.stream(ENVS, 1)[0]
    for _ in range(timesteps):
        noise = rng.integers(256, size=(ENVS, 20, 20, 1), dtype=np.uint8)
        writer.append(template._replace(observation=noise), state)
    assert writer.ready(10, max_pending=0) and ShardSaver(replay, tmp_path / "0").save()
    stored = (latest_checkpoint(tmp_path / "0") / "chunks.tfrecord").stat().st_size
    raw = timesteps * ENVS * 400
    assert 0.9 * raw < stored < 1.2 * raw


def _of_one(leaf):
    return tf.TensorSpec(leaf.shape[1:], leaf.dtype)
