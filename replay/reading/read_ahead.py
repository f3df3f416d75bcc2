"""How far a dataset reads ahead of the learner, and batches that it reads at once."""

from collections.abc import Callable

import tensorflow as tf
import tree

from ...data import Sample


def read_ahead(dataset: tf.data.Dataset, elements: int) -> tf.data.Dataset:
    """Returns the dataset, which computes this number of elements before they are needed, and no more.

    By default TensorFlow makes maps parallel and adds buffers of its own.  What is taken from a queue then waits in
    them while the learner makes its steps: with one item to a batch, two batches more.  What is sampled by priority is
    sampled by older priorities: with 8 batches of 128 to an element, 42 batches before it is needed in place of 10.

    Args:
      dataset: the dataset.
      elements: number of elements; 0 for none.
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return (dataset.prefetch(elements) if elements else dataset).with_options(options)


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
