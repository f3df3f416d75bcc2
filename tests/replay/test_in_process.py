"""Reading from a server in the reader's own process, where Reverb requests samples anew every three seconds."""

import dataclasses
import random
import threading
import time

import numpy as np
import pytest
import reverb
import timestep_streams
import tree
from reading import read_batches

from callboard.replay import WindowFormat, queue_dataset, sampled_dataset, sequence_signature
from callboard.replay.packing import item_id

ENVS, LENGTH = 4, 2
LAYOUT = timestep_streams.layout(ENVS)
SIGNATURE = sequence_signature(LAYOUT, LENGTH, ENVS)
READERS, BATCHES = 24, 8
REQUEST_SECONDS = 3.0


def test_only_queues_request_single_samples(serve, monkeypatch):
    """Each request wakes several threads, which with large batches took most of a learner's time."""
    windows, requested, trajectory_dataset = WindowFormat(LAYOUT, 1), {}, reverb.TrajectoryDataset

    def recorded(*, table, max_in_flight_samples_per_worker, **arguments):
        requested[table] = samples = max_in_flight_samples_per_worker
        return trajectory_dataset(table=table, max_in_flight_samples_per_worker=samples, **arguments)

    monkeypatch.setattr(reverb, "TrajectoryDataset", recorded)
    queue = reverb.Table.queue("queue", 4, signature=SIGNATURE)
    limiter = reverb.rate_limiters.MinSize(1)
    selectors = reverb.selectors.Uniform(), reverb.selectors.Fifo()
    replay = serve([queue, reverb.Table("replay", *selectors, 9, limiter, signature=windows.signature())])
    replay = dataclasses.replace(replay, in_process=True)
    queue_dataset(replay, LAYOUT, "queue", LENGTH, 8 * ENVS)
    sampled_dataset(replay, windows, "replay", 8)
    assert requested == {"queue": 1, "replay": 16}


@pytest.mark.slow
def test_no_item_is_lost_that_comes_when_a_request_runs_out(serve):
    """Batches of two items are read from many queues at once; each item comes three seconds after the last one."""
    tables = [f"queue_{number}" for number in range(READERS)]
    replay = serve([reverb.Table.queue(table, 4, signature=SIGNATURE) for table in tables])
    replay = dataclasses.replace(replay, in_process=True)
    item = tree.map_structure(lambda spec: np.zeros(spec.shape, spec.dtype.as_numpy_dtype), SIGNATURE)
    complete = []

    def read(table):
        read_batches(queue_dataset(replay, LAYOUT, table, LENGTH, 2 * ENVS), BATCHES)
        complete.append(table)

    def write(number):
        pauses = random.Random(number)
        with replay.client().trajectory_writer(1) as writer:
            for sent in range(2 * BATCHES):
                packed = item.packed.copy()
                packed[0, :16] = item_id(number, sent).view(np.uint8)
                writer.append(item._replace(packed=packed))
                writer.create_item(tables[number], 1.0, tree.map_structure(lambda column: column[-1], writer.history))
                writer.flush()
                threading.Event().wait(REQUEST_SECONDS + pauses.uniform(-0.002, 0.004))

    readers = [threading.Thread(target=read, args=(table,), daemon=True) for table in tables]
    writers = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(READERS)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    deadline = time.monotonic() + 10.0
    for thread in readers:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert sorted(complete) == sorted(tables)
