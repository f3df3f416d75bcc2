"""Batches of items drawn from replay, by priority or evenly, over all shards."""

from collections.abc import Callable
from typing import Any, NamedTuple

import reverb
import tensorflow as tf
import tree

from ..data import ItemInfo, Layout, Sample
from .environment_writers import ReplayItem
from .handle import ReplayHandle


class Drawn(NamedTuple):
    """Items as they come from replay.  Leaves are `[B, ...]`."""

    item: ReplayItem
    info: ItemInfo
    mass: Any
    """float64: the priority mass of the item's shard when it was drawn, the sum of priority^alpha over its items."""


def drawn_dataset(
    replay: ReplayHandle,
    layout: Layout,
    table: str,
    signature: ReplayItem,
    read: Callable[[ReplayItem], Sample],
    replica_batch: int,
    priority_exponent: float = 0.0,
) -> tf.data.Dataset:
    """Batches of `replica_batch` items as `Sample` with `info`.

    An item is drawn with probability P(shard) p(item | shard), where P(shard) is the shard's part of the priority mass
    of all shards that answer.

    Args:
      replay: where to read.
      layout: says how many shards there are.
      table: the table's name.
      signature: of one item.
      read: turns a batch of items into a `Sample`.
      replica_batch: items in a batch of one replica.
      priority_exponent: of the table, see `tables.replay_table`.
    """
    if layout.shards == 1:
        drawn = shard_dataset(replay, table, signature, 0, replica_batch, priority_exponent)
    else:
        from .shards import sharded_dataset

        drawn = sharded_dataset(replay, layout.shards, table, signature, replica_batch, priority_exponent)
    return drawn.map(lambda batch: read(batch.item)._replace(info=batch.info)).prefetch(1)


def shard_dataset(
    replay: ReplayHandle, table: str, signature: ReplayItem, shard: int, block: int, priority_exponent: float
) -> tf.data.Dataset:
    """Blocks of `block` items of one shard, `Drawn`; probabilities and numbers of items are those in the shard."""
    items = reverb.TrajectoryDataset(
        server_address=replay.address(shard),
        table=table,
        dtypes=tree.map_structure(lambda spec: spec.dtype, signature),
        shapes=tree.map_structure(lambda spec: spec.shape, signature),
        # What waits here was drawn by priorities that are older than those of the newest updates.
        max_in_flight_samples_per_worker=2 * block,
        num_workers_per_iterator=1,
    )

    def describe(sample: Any) -> Drawn:
        info = sample.info
        if priority_exponent:
            mass = tf.pow(info.priority, tf.constant(priority_exponent, tf.float64)) / info.probability
        else:
            mass = tf.cast(info.table_size, tf.float64)
        return Drawn(
            item=sample.data,
            info=ItemInfo(
                key=info.key,
                shard=tf.fill(tf.shape(info.key), shard),
                probability=info.probability,
                items=info.table_size,
            ),
            mass=mass,
        )

    return items.batch(block, drop_remainder=True).map(describe)


def drawn_spec(signature: ReplayItem, batch: int) -> Drawn:
    """`tf.TensorSpec` of a `Drawn` of `batch` items."""

    def vector(dtype: Any) -> tf.TensorSpec:
        return tf.TensorSpec((batch,), dtype)

    return Drawn(
        item=tree.map_structure(lambda spec: tf.TensorSpec((batch, *spec.shape), spec.dtype), signature),
        info=ItemInfo(
            key=vector(tf.uint64), shard=vector(tf.int32), probability=vector(tf.float64), items=vector(tf.int64)
        ),
        mass=vector(tf.float64),
    )
