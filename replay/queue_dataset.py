"""Datasets: from replay items to time-major batches, one replica's share at a time."""

from typing import Any

import reverb
import tensorflow as tf
import tree

from ..data import Layout, Sample
from .handle import ReplayHandle
from .sequences import SequenceColumns, SequenceItem
from .single_threaded_map import single_threaded_map


def queue_dataset(
    replay: ReplayHandle,
    layout: Layout,
    table: str,
    length: int,
    replica_batch: int,
    shard: int = 0,
) -> tf.data.Dataset:
    """Sequences in the order in which they were written, as `Sample` batches of `replica_batch` sequences.

    Items hold blocks of whole actor batches; they are concatenated, or cut, along B.  An item that arrives a second
    time is dropped, also where the first one came to another dataset of the same handle: see `DuplicateFilter`.

    Args:
      replay: where to read.
      layout: names the record and state, and the environments of an item.
      table: name of a first-in-first-out table.
      length: transitions in a sequence (T).
      replica_batch: sequences in one batch of one replica.
      shard: the replay shard.
    """
    envs_per_item = layout.envs_per_actor
    columns = SequenceColumns(layout, envs_per_item)
    signature = columns.signature(length)
    blocks = max(1, replica_batch // envs_per_item)
    items = reverb.TrajectoryDataset(
        server_address=replay.address(shard),
        table=table,
        dtypes=tree.map_structure(lambda spec: spec.dtype, signature),
        shapes=tree.map_structure(lambda spec: spec.shape, signature),
        max_in_flight_samples_per_worker=replay.samples_in_flight(2 * blocks),
        num_workers_per_iterator=1,  # More would hand out the queue in any order.
    )
    received = replay.received
    received.prepare()

    @tf.autograph.experimental.do_not_convert
    def without_repeated(newest: Any) -> SequenceItem:
        items: SequenceItem = newest.data
        new = received.new(columns.identities(items.packed))

        def picked() -> SequenceItem:
            return tree.map_structure(lambda leaf: tf.gather(leaf, new), items)

        # To copy frames costs more than to ask, and all else less; inline nothing can be asked.
        return tf.cond(tf.size(new) == blocks, lambda: items, picked) if items.frames else picked()

    @tf.autograph.experimental.do_not_convert
    def read(items: SequenceItem) -> Sample:
        return columns.read(tree.map_structure(lambda leaf: tf.ensure_shape(leaf, (blocks, *leaf.shape[1:])), items))

    # Beside the moving of frames a change of threads is nothing, and where there are many cores they can help.
    mapped = tf.data.Dataset.map if signature.frames else single_threaded_map
    # As many at a time as are needed: a call of a function costs more than what it does.
    new_items = mapped(items.batch(blocks, drop_remainder=True), without_repeated)
    dataset = mapped(new_items.rebatch(blocks, drop_remainder=True), read)
    if replica_batch % envs_per_item:
        parts = envs_per_item // replica_batch
        dataset = dataset.map(lambda sample: _cut(sample, parts)).unbatch()
    return dataset.prefetch(1)


def _cut(sample: Sample, parts: int) -> Sample:
    """[T, B, ...] -> [parts, T, B / parts, ...], and states [B, ...] -> [parts, B / parts, ...]."""
    return Sample(
        tree.map_structure(lambda leaf: tf.stack(tf.split(leaf, parts, axis=1)), sample.record),
        tree.map_structure(lambda leaf: tf.stack(tf.split(leaf, parts, axis=0)), sample.state),
    )
