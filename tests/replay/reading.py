"""Reading what a test has written.

In the server's own process an iterator that waits for an item cannot be destroyed before the server stops.  One that is
never destroyed keeps trying to reach the server, which takes a twentieth of a core.
"""

import contextlib

import reverb
import tensorflow as tf
import tree

from callboard.replay import BatchReader, Elements


def read_all(replay, table, signature, shard=0):
    """The items of a queue as one batch, and their `SampleInfo`; ends when it is empty."""
    dataset = reverb.TrajectoryDataset(
        server_address=replay.address(shard),
        table=table,
        dtypes=tree.map_structure(lambda spec: spec.dtype, signature),
        shapes=tree.map_structure(lambda spec: spec.shape, signature),
        max_in_flight_samples_per_worker=10,
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=50,
    )
    samples = list(dataset.batch(10))
    whole = tree.map_structure(lambda *leaves: tf.concat(leaves, axis=0), *samples)
    return whole.data, whole.info


@contextlib.contextmanager
def reading(dataset):
    """An iterator over a dataset, which is left to wait in a thread until the server has stopped."""
    elements = Elements(dataset)
    reader = BatchReader(lambda: elements, stopped=lambda: False)
    yield reader
    reader.close()


def read_batches(dataset, count):
    """The next `count` batches of a dataset, as arrays."""
    with reading(dataset) as reader:
        return [tree.map_structure(lambda leaf: leaf.numpy(), next(reader)) for _ in range(count)]
