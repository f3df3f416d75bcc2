"""Batches of a queue: items of whole actor batches, joined or cut to the size of a replica's share."""

import time

import numpy as np
import pytest
import tensorflow as tf
from numbered_blocks import ENVS, LENGTH, big_queue, layout_of, numbered
from reading import read_batches

from callboard.replay import BatchReader, Elements, SequenceWriter, queue_dataset


@pytest.mark.slow("daily")
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


@pytest.mark.slow("daily")
@pytest.mark.parametrize("framed", [False, True])
def test_no_more_is_read_ahead_than_one_batch_and_the_items_of_another(serve, framed):
    record = numbered(0)
    if framed:
        record = record._replace(observation=np.zeros((ENVS, 8, 8, 4), np.uint8))
    layout = layout_of(record)
    replay = serve([big_queue(layout)])
    writer = SequenceWriter(replay, layout, "queue", LENGTH, LENGTH)
    for _ in range(12 * LENGTH + 1):
        writer.append(record, ())
    assert writer.ready(10, max_pending=0)
    batches = iter(Elements(queue_dataset(replay, layout, "queue", LENGTH, ENVS)))
    for taken in range(1, 6):
        next(batches)
        time.sleep(0.1)
        left = replay.client().server_info()["queue"].current_size
        assert 12 - taken - 2 <= left, f"{12 - taken - left} batches are ahead of the learner"


def test_a_reader_that_waits_for_its_own_process_is_closed_at_once(serve):
    """Reverb's sampler in the server's process looks only every three seconds whether it was canceled."""
    layout = layout_of(numbered(0))
    replay = serve([big_queue(layout)])
    reader = BatchReader(lambda: Elements(queue_dataset(replay, layout, "queue", LENGTH, 4)), stopped=lambda: False)
    assert reader.poll(1.0) is None
    begun = time.monotonic()
    reader.close()
    time.sleep(0.01)  # Lets other threads take Python's lock.
    assert time.monotonic() - begun < 0.5
