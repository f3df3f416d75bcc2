"""Sampling from one replay shard, by priority or uniformly."""

import dataclasses
from typing import Any, NamedTuple

import reverb
import tensorflow as tf
import tree

from ...data import ItemInfo
from ..servers.handle import ReplayHandle
from ..writing.batch_writers import ReplayItem
from .read_ahead import read_ahead


@dataclasses.dataclass(frozen=True)
class SampledTable:
    """A table that all shards of a replay have, and how its items are sampled.

    Attributes:
      replay: handle of the replay.
      name: the table's name.
      signature: `tf.TensorSpec` nest of one item.
      priority_exponent: the table's exponent, see `tables.replay_table`.
      windows: windows that an item has room for; 1 unless it has several to choose from, see `whole_batches`.
      counts: whether an item's priority is the number of windows in it.
    """

    replay: ReplayHandle
    name: str
    signature: ReplayItem
    priority_exponent: float = 0.0
    windows: int = 1
    counts: bool = False


class SampledItems(NamedTuple):
    """Items as sampled from replay.  Leaves are `[B, ...]`."""

    item: ReplayItem
    info: ItemInfo
    mass: Any
    """float64, priority mass of the item's shard when it was sampled: the sum of priority^alpha over its items."""
    goal: Any = ()
    """int32, see `ItemFormat.read`; `()` before it is chosen, and without further goals."""


def shard_dataset(table: SampledTable, shard: int, block: int, blocks: int = 1) -> tf.data.Dataset:
    """Returns a dataset of `SampledItems` of one shard, `blocks` concatenated blocks of `block` items per element.

    Probabilities and numbers of items are relative to the shard.
    """
    items = reverb.TrajectoryDataset(
        server_address=table.replay.address(shard),
        table=table.name,
        dtypes=tree.map_structure(lambda spec: spec.dtype, table.signature),
        shapes=tree.map_structure(lambda spec: spec.shape, table.signature),
        # Kept small: prefetched samples do not reflect the newest priority updates.  In the server's process Reverb
        # drops samples now and then; others take their place.
        max_in_flight_samples_per_worker=2 * block,
        num_workers_per_iterator=1,
    )

    @tf.autograph.experimental.do_not_convert
    def describe(sample: Any) -> SampledItems:
        info = sample.info
        if table.priority_exponent:
            mass = tf.pow(info.priority, tf.constant(table.priority_exponent, tf.float64)) / info.probability
        else:
            mass = tf.cast(info.table_size, tf.float64)
        return SampledItems(
            item=sample.data,
            info=ItemInfo(
                key=info.key,
                shard=tf.fill(tf.shape(info.key), shard),
                probability=info.probability,
                items=tf.cast(tf.round(mass), tf.int64) if table.counts else table.windows * info.table_size,
            ),
            mass=mass,
        )

    return read_ahead(items.batch(blocks * block, drop_remainder=True).map(describe), 0)


def sampled_items_spec(signature: ReplayItem, batch: int) -> SampledItems:
    """Returns the `tf.TensorSpec`s of a `SampledItems` of `batch` items."""

    def vector(dtype: Any) -> tf.TensorSpec:
        return tf.TensorSpec((batch,), dtype)

    return SampledItems(
        item=tree.map_structure(lambda spec: tf.TensorSpec((batch, *spec.shape), spec.dtype), signature),
        info=ItemInfo(
            key=vector(tf.uint64), shard=vector(tf.int32), probability=vector(tf.float64), items=vector(tf.int64)
        ),
        mass=vector(tf.float64),
    )
