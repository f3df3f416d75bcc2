"""Separates batches that were read at once."""

from collections.abc import Callable

import tensorflow as tf
import tree

from ...data import Sample


def split_batches(sample: Sample, batches: int) -> Sample:
    """Separates batches that lie side by side along B.

    Args:
      sample: records and returns `[T, batches * B, ...]`; state and info `[batches * B, ...]`.
      batches: number of batches, all of the same size.

    Returns:
      Records and returns `[batches, T, B, ...]`; state and info `[batches, B, ...]`.
    """

    def along(axis: int) -> Callable[[tf.Tensor], tf.Tensor]:
        def split(leaf: tf.Tensor) -> tf.Tensor:
            before, rest = leaf.shape[:axis], leaf.shape[axis + 1 :]
            parts = tf.reshape(leaf, (*before, batches, leaf.shape[axis] // batches, *rest))
            return tf.transpose(parts, (axis, *(other for other in range(parts.shape.rank) if other != axis)))

        return split

    return Sample(
        tree.map_structure(along(1), sample.record),
        tree.map_structure(along(0), sample.state),
        tree.map_structure(along(0), sample.info),
        tree.map_structure(along(1), sample.discounted_return),
    )
