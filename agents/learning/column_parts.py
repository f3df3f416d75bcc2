"""Calls of networks on a whole batch, in parts of its columns: the memory that they need is then that of one part."""

from collections.abc import Callable

import tensorflow as tf
import tree

from ...data import Nest

_MOST_NUMBERS = 2**22
"""Numbers in a part's observations. A torso of convolutions has about ten times as many outputs."""


def in_column_parts(function: Callable[[Nest, Nest], tf.Tensor], columns: Nest, state: Nest = ()) -> tf.Tensor:
    """Returns a function's result `[T, B]` for sequences, computed in equal parts if these are large.

    Args:
      function: takes columns and state, or parts of them, and returns `[T, B]`. It has no gradient, and each of its
        results depends on its own column only.
      columns: leaves `[T, B, ...]`; T may differ.
      state: leaves `[B, ...]`.
    """
    shapes = [tf.TensorShape(leaf.shape) for leaf in tree.flatten(columns)]
    batch, numbers = shapes[0][1], sum(shape.num_elements() or 0 for shape in shapes)
    if batch is None or numbers <= _MOST_NUMBERS:
        return function(columns, state)
    divisors = [size for size in range(batch, 0, -1) if batch % size == 0]
    size = next((size for size in divisors if size * numbers <= batch * _MOST_NUMBERS), 1)
    parts = batch // size

    def part(number: tf.Tensor) -> tf.Tensor:
        first = number * size
        return function(
            tree.map_structure(lambda leaf: _taken(leaf, 1, first, size), columns),
            tree.map_structure(lambda leaf: _taken(leaf, 0, first, size), state),
        )

    dtype = tf.keras.backend.floatx()
    results = tf.map_fn(part, tf.range(parts), fn_output_signature=dtype, parallel_iterations=1)
    return tf.reshape(tf.transpose(results, (1, 0, 2)), (-1, batch))


def _taken(leaf: tf.Tensor, axis: int, first: tf.Tensor, size: int) -> tf.Tensor:
    """Returns `size` indices of an axis, from `first`."""
    begin = [first if axis == number else 0 for number in range(len(leaf.shape))]
    sizes = [size if axis == number else length for number, length in enumerate(leaf.shape)]
    return tf.slice(leaf, begin, sizes)
