"""Gathers and stacks tensors of any dtype by operations that have kernels for GPUs.

TensorFlow gathers and stacks no integers of 8 or 16 bits on a GPU, nor unsigned ones: it would copy a batch of images
to the processor.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_WORDS = {8: tf.int64, 4: tf.int32}


def gather(x: Any, index: Any, axis: int = 0) -> tf.Tensor:
    """Does what `tf.gather` does along one axis."""
    return _of_words(tf.convert_to_tensor(x), axis + 1, lambda words: tf.gather(words, index, axis=axis))


def gather_nd(x: Any, where: Any) -> tf.Tensor:
    """Does what `tf.gather_nd` does."""
    where = tf.convert_to_tensor(where)
    return _of_words(tf.convert_to_tensor(x), where.shape[-1], lambda words: tf.gather_nd(words, where))


def stack_leaves(leaves: Sequence[Any], axis: int = 0) -> tf.Tensor:
    """Does what `tf.stack` does."""
    return tf.concat([tf.expand_dims(leaf, axis) for leaf in leaves], axis)


def _of_words(x: tf.Tensor, axes: int, gathered: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Gathers along the first axes, from numbers of 32 or 64 bits where the dtype has no kernel.

    Several integers that follow each other are one such number; where they do not fill one, and for booleans, each is
    cast.
    """
    if x.dtype.is_floating or x.dtype.is_complex or x.dtype in (tf.int32, tf.int64):
        return gathered(x)
    rest, size = x.shape[axes:], x.dtype.size
    if x.dtype.is_bool or not rest.is_fully_defined() or math.prod(rest) * size % 4:
        return tf.cast(gathered(tf.cast(x, tf.int32)), x.dtype)
    if size >= 4:
        return tf.bitcast(gathered(tf.bitcast(x, _WORDS[size])), x.dtype)
    leading = [x.shape[axis] or tf.shape(x)[axis] for axis in range(axes)]
    words = tf.bitcast(tf.reshape(x, [*leading, math.prod(rest) * size // 4, 4 // size]), tf.int32)
    found = tf.bitcast(gathered(words), x.dtype)
    leading = [found.shape[axis] or tf.shape(found)[axis] for axis in range(found.shape.rank - 2)]
    return tf.reshape(found, [*leading, *rest])
