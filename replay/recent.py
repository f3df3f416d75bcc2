"""The newest records of a batch of environments, at hand as whole arrays."""

import numpy as np
import tree

from ..data import Nest, Record

_SPARE_ROWS = 100


class RecentRecords:
    """The newest `rows` records of arrays `[B, ...]`, without observations.

    Args:
      record: `Record` of `tf.TensorSpec` for one environment.
      batch: B.
      rows: how many are at hand.
    """

    def __init__(self, record: Record, batch: int, rows: int):
        self._rows = rows
        # With room to spare: what is at hand lies in one piece, and is moved to the front only now and then.
        self._room = rows + _SPARE_ROWS
        self._fields = tree.map_structure(
            lambda spec: np.zeros((self._room, batch, *spec.shape), spec.dtype.as_numpy_dtype),
            record._replace(observation=()),
        )
        self._leaves: list[np.ndarray] = tree.flatten(self._fields)
        self._end = 0

    def append(self, record: Record) -> None:
        if self._end == self._room:
            kept = self._rows - 1
            for leaf in self._leaves:
                leaf[:kept] = leaf[self._room - kept :].copy()
            self._end = kept
        for leaf, row in zip(self._leaves, tree.flatten(record._replace(observation=())), strict=True):
            leaf[self._end] = row
        self._end += 1

    def whole(self) -> Record:
        """Views `[rows, B, ...]` of the newest records, good until the next `append`."""
        newest = slice(self._end - self._rows, self._end)
        fields = self._fields
        return Record(
            observation=(),
            first=fields.first[newest],
            last=fields.last[newest],
            action=cut(fields.action, newest),
            reward=fields.reward[newest],
            discount=fields.discount[newest],
            extras=cut(fields.extras, newest),
            version=fields.version[newest],
        )


def cut(nest: Nest, rows: slice) -> Nest:
    """Some rows of all leaves."""
    # `tree` is slow, and most fields are single arrays or tensors.
    return nest[rows] if hasattr(nest, "shape") else tree.map_structure(lambda leaf: leaf[rows], nest)
