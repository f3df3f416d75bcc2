"""Ring buffer of a batch's newest records, available as contiguous arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tree

from ...data import Nest, Record

_SPARE_ROWS = 100


class RecentRecords:
    """Buffer of the records of the newest `length` transitions, without observations.

    Args:
      record: `Record` of `tf.TensorSpec` for one environment.
      batch: number of environments (B).
      length: number of transitions in the buffer.
      all_fields: whether to keep all fields, or only `first`, `last` and `discount`.
    """

    def __init__(self, record: Record, batch: int, length: int, all_fields: bool = True):
        def kept(record: Record) -> Record:
            rest = record._replace(observation=())
            return rest if all_fields else rest._replace(action=(), reward=(), extras=(), version=())

        self._rows = length + 1
        self._kept = leaf_indices(record, kept)
        # Spare rows keep the newest records contiguous; they are moved to the front only when the rows are used up.
        self._room = self._rows + _SPARE_ROWS
        fields = tree.map_structure(
            lambda spec: np.zeros((self._room, batch, *spec.shape), spec.dtype.as_numpy_dtype), kept(record)
        )
        self._leaves: list[np.ndarray] = tree.flatten(fields)
        # Views are created once, since creating them for each call would take as long as writing the timesteps.
        self._samples = [_sample(fields, start, length) for start in range(_SPARE_ROWS + 1)]
        self._end = 0

    def append(self, leaves: Sequence[Any]) -> None:
        """Adds a record by its leaves, in the order of `tree.flatten`."""
        if self._end == self._room:
            kept = self._rows - 1
            for leaf in self._leaves:
                leaf[:kept] = leaf[self._room - kept :].copy()
            self._end = kept
        end = self._end
        for field, index in zip(self._leaves, self._kept, strict=True):
            field[end] = leaves[index]
        self._end += 1

    def sample(self) -> Record:
        """Returns the newest records with the shapes of a `Sample`, but extras `[length + 1, B, ...]`.

        Fields that are not kept are `()`.  The arrays are read-only views, valid until the next `append`.
        """
        return self._samples[self._end - self._rows]


def _sample(fields: Record, start: int, length: int) -> Record:
    def view(leaf: np.ndarray) -> np.ndarray:
        rows = leaf[start : start + length + 1]
        rows.setflags(write=False)
        return rows

    rows = tree.map_structure(view, fields)
    transitions = slice(None, -1)
    return rows._replace(
        action=cut(rows.action, transitions),
        reward=cut(rows.reward, transitions),
        discount=cut(rows.discount, transitions),
        version=cut(rows.version, transitions),
    )


def leaf_indices(record: Record, kept: Callable[[Record], Nest]) -> list[int]:
    """Returns the indices of the leaves of `kept(record)` among the leaves of a record."""
    leaves = range(len(tree.flatten(record)))
    return tree.flatten(kept(tree.unflatten_as(record, leaves)))


def cut(nest: Nest, rows: slice) -> Nest:
    """Returns a slice of the rows of all leaves."""
    # Avoid `tree`, which is slow, for single arrays or tensors, as most fields are.
    return nest[rows] if hasattr(nest, "shape") else tree.map_structure(lambda leaf: leaf[rows], nest)
