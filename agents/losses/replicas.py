"""Cross-replica reductions that keep an update independent of the number of replicas.

Call these functions in a replica context or outside of any strategy.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def largest_over_replicas(x: Any) -> tf.Tensor:
    """Returns the largest element of `x`, of any shape, over all replicas: a scalar without gradient."""
    largest = tf.stop_gradient(tf.reduce_max(x))
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return largest
    # `ReduceOp` has no maximum, so gather the largest element of each replica.
    return tf.reduce_max(context.all_gather(largest[tf.newaxis], axis=0))


def sum_over_replicas(x: Any) -> tf.Tensor:
    """Returns the sum of all elements of `x`, of any shape, over all replicas: a scalar without gradient."""
    total = tf.stop_gradient(tf.reduce_sum(x))
    context = tf.distribute.get_replica_context()
    return total if context.num_replicas_in_sync == 1 else context.all_reduce(tf.distribute.ReduceOp.SUM, total)


def global_index(batch_size: Any) -> tf.Tensor:
    """Returns the index in the global batch of each element of this replica's share, int32 `[batch_size]`.

    Args:
      batch_size: size of this replica's share, the same in all replicas.
    """
    replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
    return replica * batch_size + tf.range(batch_size)


def global_mean(count: int | float, dtype: tf.DType) -> Callable[[Any], tf.Tensor]:
    """Returns a function that maps a replica's values, of any shape, to their part of the mean over the global batch.

    Dividing by the elements of the global batch, and not by those of this replica or by its valid transitions, makes
    the sum over the replicas the mean of the whole batch.

    Args:
      count: elements of the global batch.
      dtype: floating type of the mean.
    """

    def mean(values: Any) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(values, dtype)) / tf.cast(count, dtype)

    return mean
