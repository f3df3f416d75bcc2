"""Dataset map that runs its function in the reading thread."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tree

from ...data import Nest


def single_threaded_map(dataset: tf.data.Dataset, function: Callable[[Any], Nest]) -> tf.data.Dataset:
    """Like `dataset.map(function)`, but without passing each element to a thread pool and back.

    The pool takes several times as long as a function of a few small operations, in CPU time as well.

    Args:
      dataset: a dataset of nests of tensors.
      function: function of one element, without control flow (`tf.cond`, `tf.while_loop`), which TensorFlow's
        single-threaded executor does not support.
    """
    outputs: Nest = None

    def of_leaves(*leaves: tf.Tensor) -> list[tf.Tensor]:
        nonlocal outputs
        result = function(tree.unflatten_as(dataset.element_spec, leaves))
        outputs = tree.map_structure(tf.type_spec_from_value, result)
        return tree.flatten(result)

    traced = tf.function(of_leaves, autograph=False).get_concrete_function(*tree.flatten(dataset.element_spec))
    mapped = tf.data.experimental.from_variant(
        tf.raw_ops.MapDataset(
            input_dataset=tf.data.experimental.to_variant(dataset),
            other_arguments=traced.captured_inputs,
            f=traced,
            output_types=[leaf.dtype for leaf in tree.flatten(outputs)],
            output_shapes=[leaf.shape for leaf in tree.flatten(outputs)],
            use_inter_op_parallelism=False,
        ),
        outputs,
    )
    # Keep a reference: TensorFlow deletes a function that is no longer referenced.
    mapped.function = traced
    return mapped
