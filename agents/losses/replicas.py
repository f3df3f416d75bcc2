"""Cross-replica reductions that keep an update independent of the number of replicas.

Call these functions in a replica context or outside of any strategy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from .shapes import check_same_shape, where_valid


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


class Mean(NamedTuple):
    """A metric that is a mean: what a replica adds to its numerator and to its denominator.

    Both are added up over replicas and over the batches of a learner step before one is divided by the other.
    """

    total: Any
    """Scalar, the sum of the replica's values."""
    count: Any
    """Scalar, their number."""

    @property
    def value(self) -> tf.Tensor:
        """The mean; 0 of no values."""
        return tf.math.divide_no_nan(self.total, self.count)


def valid_mean(valid_t: Any, dtype: tf.DType) -> Callable[[Any], Mean]:
    """Returns a function that maps a replica's values to a metric: their mean over all valid transitions.

    Args:
      valid_t: bool `[...]`, the replica's valid transitions.
      dtype: floating type of the mean.

    Returns:
      A function of numbers of the shape of `valid_t`, whose values at other transitions may be anything.
    """
    count = tf.reduce_sum(tf.cast(valid_t, dtype))

    def mean(values: Any) -> Mean:
        values = tf.cast(values, dtype)
        check_same_shape(values=values, valid_t=valid_t)
        return Mean(tf.reduce_sum(where_valid(valid_t, values)), count)

    return mean
