"""Items of a queue: of one shard in the order of writing, or of several as they arrive."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import reverb
import tensorflow as tf
import tree

from ...data import Nest
from ..servers.handle import ReplayHandle
from .batch_reader import BatchReader
from .elements import Elements, rebuilt_if_changed

_POLL_SECONDS = 0.2
_THREADS = 2
"""Threads of a dataset of several shards: one waits for items, while another computes what follows."""


class QueueItem(NamedTuple):
    """An item; Reverb's samples have the same field."""

    data: Nest


def queue_items(
    replay: ReplayHandle, table: str, signature: Nest, shards: Sequence[int], ahead: int = 1
) -> tf.data.Dataset:
    """Returns a dataset of the items of a first-in-first-out table, each of which is read once, in the field `data`.

    Of several shards, two items each are read ahead.  Those of each shard keep their order; the shards that have an
    item take turns, and one that is away is not waited for.

    Args:
      replay: handle of the replay to read from.
      table: name of the table.
      signature: `tf.TensorSpec` nest of one item.
      shards: indices of the shards to read from.
      ahead: items of a single shard that are read ahead.
    """

    def items_of(shard: int, ahead: int) -> tf.data.Dataset:
        return reverb.TrajectoryDataset(
            server_address=replay.address(shard),
            table=table,
            dtypes=tree.map_structure(lambda spec: spec.dtype, signature),
            shapes=tree.map_structure(lambda spec: spec.shape, signature),
            # In the server's process Reverb 0.11 renews a sampler's request every three seconds and drops the samples
            # of a request that expires partly filled, which here would be lost.  That of a single sample is never
            # partly filled.
            max_in_flight_samples_per_worker=1 if replay.in_process else ahead,
            num_workers_per_iterator=1,  # Several workers would not preserve the queue's order.
        )

    if len(shards) == 1:
        return items_of(shards[0], ahead)

    def reader(shard: int, arrived: threading.Event) -> BatchReader:
        return BatchReader(
            rebuilt_if_changed(lambda: Elements(items_of(shard, 1)), key=lambda: replay.address(shard)),
            stopped=lambda: False,
            incarnation=lambda: replay.incarnation(shard),
            ahead=1,
            arrived=arrived.set,
        )

    def generate() -> Iterator[QueueItem]:
        arrived = threading.Event()
        readers = [reader(shard, arrived) for shard in shards]
        try:
            for item in in_turn(readers, arrived, replay.ended):
                yield QueueItem(item.data)
        finally:
            for one in readers:
                one.close()

    options = tf.data.Options()
    options.threading.private_threadpool_size = _THREADS
    return tf.data.Dataset.from_generator(generate, output_signature=QueueItem(signature)).with_options(options)


def in_turn(readers: Sequence[BatchReader], arrived: threading.Event, ended: threading.Event) -> Iterator[Any]:
    """Yields what readers read, as it arrives; those that have something take turns.

    Args:
      readers: the readers.
      arrived: set by the readers when they have read something.
      ended: ends the iteration when set.
    """
    turn = 0
    while not ended.is_set():
        arrived.clear()
        for index in (*range(turn, len(readers)), *range(turn)):
            element = readers[index].poll(0.0)
            if element is not None:
                turn = index + 1
                yield element
                break
        else:
            arrived.wait(_POLL_SECONDS)
