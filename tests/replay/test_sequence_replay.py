"""Overlapping sequences of single environments, through a real server."""

import numpy as np
import pytest
import reverb
import tensorflow as tf
import timestep_streams
import tree
from reading import read_all

from callboard.replay import ItemWriter, SequenceFormat, ShardSaver, latest_checkpoint

ENVS, LENGTH, TIMESTEPS = 3, 8, 70
LAYOUT = timestep_streams.layout(ENVS)._replace(state={"core": (tf.TensorSpec((2,), tf.float32),)})


def write(serve, records, period, stack=1, priority=None):
    sequence_format = SequenceFormat(LAYOUT, LENGTH, stack, keep_extras=True)
    replay = serve([reverb.Table.queue("sequences", 10_000, signature=sequence_format.signature())])
    writer = ItemWriter(replay, sequence_format, "sequences", period, priority)
    for timestep, record in enumerate(records):
        state = np.stack([100 * timestep + np.arange(ENVS), np.zeros(ENVS)], axis=1).astype(np.float32)
        writer.append(record, {"core": (state,)})
        assert writer.ready(60)
    writer.close()
    return replay, sequence_format, writer.items_written


@pytest.mark.slow("daily")
@pytest.mark.parametrize(("period", "stack"), [(LENGTH, 1), (LENGTH // 2, 4), (3, 2)])
def test_sequences_hold_their_timesteps_stacks_and_the_state_they_began_with(serve, period, stack):
    records = timestep_streams.stream(ENVS, TIMESTEPS)
    replay, sequence_format, written = write(serve, records, period, stack)
    items, _ = read_all(replay, "sequences", sequence_format.signature())
    sample = tree.map_structure(lambda leaf: leaf.numpy(), sequence_format.read(items))
    starts = {tuple(start) for start in sample.record.observation["body"][0].astype(int)}
    assert starts == {(env, start) for env in range(ENVS) for start in range(0, TIMESTEPS - LENGTH, period)}
    assert written == len(starts) == sample.record.first.shape[1]
    for number in range(written):
        env, start = sample.record.observation["body"][0, number].astype(int)
        np.testing.assert_array_equal(sample.state["core"][0][number], [100 * start + env, 0])
        for row in range(LENGTH + 1):
            record = tree.map_structure(lambda leaf, env=env: leaf[env], records[start + row])
            of_item = tree.map_structure(lambda leaf, number=number: leaf[:, number], sample.record)
            np.testing.assert_array_equal(of_item.observation["body"][row], record.observation["body"])
            stacked = timestep_streams.stacked(records, env, start + row, stack)
            np.testing.assert_array_equal(of_item.observation["eye"][row], stacked)
            assert (of_item.first[row], of_item.last[row]) == (record.first, record.last)
            if row < LENGTH:
                for field in ("action", "reward", "discount", "extras", "version"):
                    np.testing.assert_equal(
                        tree.map_structure(lambda leaf, row=row: leaf[row], getattr(of_item, field)),
                        getattr(record, field),
                    )


def test_first_priorities_come_from_the_whole_sequence(serve):
    records = timestep_streams.stream(ENVS, TIMESTEPS, seed=1)

    def priority(record):
        assert record.extras["q"].shape[:2] == (LENGTH + 1, ENVS) and record.reward.shape == (LENGTH, ENVS)
        return np.abs(record.reward).sum(axis=0) + np.abs(record.extras["q"][-1, :, 0])

    replay, sequence_format, _ = write(serve, records, 4, priority=priority)
    items, info = read_all(replay, "sequences", sequence_format.signature())
    body = sequence_format.read(items).record.observation["body"][0].numpy().astype(int)
    for (env, start), found in zip(body, info.priority.numpy(), strict=True):
        rewards = sum(abs(records[timestep].reward[env]) for timestep in range(start, start + LENGTH))
        expected = rewards + abs(records[start + LENGTH].extras["q"][env, 0])
        assert found == pytest.approx(expected, rel=1e-5)


def test_overlapping_sequences_store_no_timestep_twice(serve, tmp_path):
    records = timestep_streams.stream(ENVS, 300, seed=2)
    rng = np.random.default_rng(0)
    sizes = {}
    for number, period in enumerate((LENGTH, 2)):
        noisy = [
            record._replace(extras={"q": rng.integers(2**32, size=(ENVS, 2), dtype=np.uint32).view(np.float32)})
            for record in records
        ]
        replay, _, _ = write(serve, noisy, period)
        assert ShardSaver(replay, tmp_path / str(number)).save()
        sizes[period] = (latest_checkpoint(tmp_path / str(number)) / "chunks.tfrecord").stat().st_size
    # Four times as many items, each with a state of its own; the timesteps are the same.
    assert sizes[2] < 2 * sizes[LENGTH]
