"""How far a dataset reads ahead of the learner."""

import tensorflow as tf


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
