"""Items that hold the windows or sequences of an actor's whole batch, and sampling from them in two levels.

Reverb's costs of writing and of sampling are per item.  An item of a whole batch holds what starts at one timestep in
all B environments; a row of it has a flag for each environment, which says whether what ends there may be sampled.  The
item's priority in Reverb is the number v of flags that are set.

With V = sum of v over all items, an item is sampled with probability v / V, and k of its v windows are then chosen at
random, without repetition where k <= v.  So each of the k is a given window of the item with probability 1 / v, and any
window of replay with probability (v / V) (1 / v) = 1 / V, as if all were sampled by themselves.  Only their joint
distribution differs: k of a batch are of the same timestep.
"""

import tensorflow as tf
import tree

from ..item_format import ItemFormat
from ..writing.per_environment_writers import ReplayItem
from .sampling import SampledItems

_LARGEST = 8192
"""Bytes of a window or sequence up to which Reverb's cost for an item is more than that for its bytes, as measured."""
_ITEMS_PER_BATCH = 8
"""Least number of timesteps of which the windows of a batch are, unless the setting says otherwise."""


def chosen_number(item_bytes: int, batch: int, envs: int) -> int:
    """Returns how many windows or sequences of an actor's batch to sample together; 1 for items of single ones.

    Args:
      item_bytes: bytes of one window or sequence.
      batch: windows or sequences in a replica's share of a batch.
      envs: environments of an actor.
    """
    if item_bytes > _LARGEST:
        return 1
    fitting = (number for number in range(2, envs + 1) if batch % number == 0 and batch // number >= _ITEMS_PER_BATCH)
    return max(fitting, default=1)


def chosen_of(items: SampledItems, item_format: ItemFormat) -> SampledItems:
    """Chooses from items of whole batches at random what is learned from.

    Args:
      items: N items, with the number of all flags that are set as `info.items`.
      item_format: format of the items.

    Returns:
      N k items of single environments, where k is `item_format.together`, those of an item side by side.
    """
    sampled, together = item_format.sampled(items.item), item_format.together
    chosen = chosen_environments(sampled, together)
    rows = tf.transpose(tf.gather(items.item.rows, chosen, axis=2, batch_dims=1), (0, 2, 1, 3))
    state = tf.gather(items.item.state, chosen, axis=1, batch_dims=1) if item_format.state else ()
    number = tf.reduce_sum(tf.cast(sampled, tf.float64), axis=1)
    info = items.info._replace(probability=tf.math.divide_no_nan(items.info.probability, number))
    return SampledItems(
        item=tree.map_structure(lambda leaf: tf.reshape(leaf, (-1, *leaf.shape[2:])), ReplayItem(rows, state)),
        info=tree.map_structure(lambda leaf: tf.repeat(leaf, together), info),
        mass=tf.repeat(items.mass, together),
    )


def chosen_environments(sampled: tf.Tensor, number: int) -> tf.Tensor:
    """Chooses environments at random for each item, each with the same probability.

    Args:
      sampled: bool `[N, B]`, which may be chosen; at least one of each item.
      number: how many are chosen of each item (k).

    Returns:
      int32 `[N, k]`, without repetition where at least k may be chosen; otherwise all, as equally often as k allows.
    """
    # In random order, and those that may not be chosen last.
    order = tf.argsort(tf.where(sampled, tf.random.uniform(tf.shape(sampled)), 2.0), axis=1)
    flags = tf.maximum(tf.reduce_sum(tf.cast(sampled, tf.int32), axis=1, keepdims=True), 1)
    return tf.gather(order, tf.range(number) % flags, batch_dims=1)
