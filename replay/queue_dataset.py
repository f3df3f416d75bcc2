"""Dataset of a queue's sequences: time-major batches, one replica's share per element."""

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
    """Returns sequences in the order in which they were written, as `Sample` batches of `replica_batch` sequences.

    An item holds the sequences of a whole actor batch; items are concatenated or split along B.  They are deduplicated
    across all datasets of the same handle, see `DuplicateFilter`.

    Args:
      replay: handle of the replay to read from.
      layout: contains the specs of record and state, and the number of environments of an item.
      table: name of a first-in-first-out table.
      length: transitions in a sequence (T).
      replica_batch: sequences in a replica's share of a batch.
      shard: index of the replay shard.
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
        num_workers_per_iterator=1,  # Several workers would not preserve the queue's order.
    )
    received = replay.received
    received.prepare()

    @tf.autograph.experimental.do_not_convert
    def without_repeated(newest: Any) -> SequenceItem:
        items: SequenceItem = newest.data
        new = received.new(columns.item_ids(items.packed))

        def picked() -> SequenceItem:
            return tree.map_structure(lambda leaf: tf.gather(leaf, new), items)

        # Copying frames takes longer than a `tf.cond`, copying the rest does not; and a single-threaded map does not
        # support `tf.cond`.
        return tf.cond(tf.size(new) == blocks, lambda: items, picked) if items.frames else picked()

    @tf.autograph.experimental.do_not_convert
    def read(items: SequenceItem) -> Sample:
        return columns.read(tree.map_structure(lambda leaf: tf.ensure_shape(leaf, (blocks, *leaf.shape[1:])), items))

    # With frames, the cost of a thread pool is negligible compared with copying, and several cores can share the work.
    mapped = tf.data.Dataset.map if signature.frames else single_threaded_map
    # All items of a batch are mapped in one call, since calling the function takes longer than its operations.
    new_items = mapped(items.batch(blocks, drop_remainder=True), without_repeated)
    dataset = mapped(new_items.rebatch(blocks, drop_remainder=True), read)
    if replica_batch % envs_per_item:
        parts = envs_per_item // replica_batch
        dataset = dataset.map(lambda sample: _cut(sample, parts)).unbatch()
    return dataset.prefetch(1)


def _cut(sample: Sample, parts: int) -> Sample:
    """Splits [T, B, ...] to [parts, T, B / parts, ...], and states [B, ...] to [parts, B / parts, ...]."""
    return Sample(
        tree.map_structure(lambda leaf: tf.stack(tf.split(leaf, parts, axis=1)), sample.record),
        tree.map_structure(lambda leaf: tf.stack(tf.split(leaf, parts, axis=0)), sample.state),
    )
