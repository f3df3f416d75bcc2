"""Packing of nests into rows of bytes: any number of fields of any dtype, without loss, in a single replay column.

An item has an id, by which one that is sent twice is found.

The cost of writing is dominated by the Python time per column, and every column of an item has its own overhead in the
server.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ..data import Nest

# Slots per writer: this many consecutive items of a writer are tracked separately.  A writer has far fewer items in
# flight, and seldom as many in one batch.
_SLOTS = 1024
ITEM_ID_BYTES = 16
WRITER_BITS = 52
"""Bits of a writer's unique number."""


def item_id(writer: int, number: int) -> np.ndarray:
    """Returns the unique id of an item, int64 `[2]`: its slot in the filter's table, and its number.

    Args:
      writer: a number of `WRITER_BITS` bits that is unique to the writer.
      number: number of items that the writer wrote before.
    """
    return np.array([writer * _SLOTS + number % _SLOTS, number], np.int64)


class Packing:
    """Row format of a nest: the bytes of its leaves, concatenated.

    Args:
      nest: nest of `tf.TensorSpec` of one row.
    """

    def __init__(self, nest: Nest):
        self._nest = nest
        self._specs = tree.flatten(nest)
        # Without alignment, so that a row is the concatenation of its fields' bytes.
        self._dtype = np.dtype(
            [(str(index), spec.dtype.as_numpy_dtype, tuple(spec.shape)) for index, spec in enumerate(self._specs)]
        )
        self._sizes = [self._dtype[index].itemsize for index in range(len(self._specs))]

    def signature(self, *leading: int) -> tf.TensorSpec:
        """Returns the spec of rows, uint8 `[*leading, size]`; its name lists the fields so that changes are noticed."""
        names = [".".join(str(part) for part in path) for path, _ in tree.flatten_with_path(self._nest)]
        content = (f"{name}:{spec.dtype.name}{list(spec.shape)}" for name, spec in zip(names, self._specs, strict=True))
        return tf.TensorSpec((*leading, self._dtype.itemsize), tf.uint8, name=" ".join(content))

    def unpack(self, packed: tf.Tensor) -> Nest:
        """Unpacks rows `[*leading, size]` to a nest with leaves `[*leading, ...]`; the shape must be static."""
        leading = tuple(packed.shape[:-1])
        parts = tf.split(packed, self._sizes, axis=-1)
        leaves = [_from_bytes(part, leading, spec) for part, spec in zip(parts, self._specs, strict=True)]
        return tree.unflatten_as(self._nest, leaves)

    def rows(self, batch: int) -> "Rows":
        """Creates a reusable buffer for a batch of rows."""
        return Rows(self._dtype, batch)


class Rows:
    """A reusable buffer for a batch of rows."""

    def __init__(self, dtype: np.dtype, batch: int):
        rows = np.zeros(batch, dtype)
        self._fields = [rows[name] for name in dtype.names or ()]
        self.bytes = rows.view(np.uint8).reshape(batch, -1)
        """uint8 `[B, size]`, the rows of the last `fill`."""

    def fill(self, leaves: Sequence[Any]) -> np.ndarray:
        """Packs leaves, arrays `[B, ...]` in the order of `tree.flatten`.  The result is valid until the next call."""
        for field, leaf in zip(self._fields, leaves, strict=True):
            field[...] = leaf
        return self.bytes


def _from_bytes(part: tf.Tensor, leading: tuple[int, ...], spec: tf.TensorSpec) -> tf.Tensor:
    shape = (*leading, *spec.shape)
    if spec.dtype == tf.bool:
        return tf.cast(tf.reshape(part, shape), tf.bool)
    if spec.dtype.size == 1:
        return tf.bitcast(tf.reshape(part, shape), spec.dtype)
    return tf.bitcast(tf.reshape(part, (*shape, spec.dtype.size)), spec.dtype)
