"""The newest records of an actor, kept to work out the first priorities of what is cut from them."""

from typing import Any

import numpy as np
import tree

from ..data import Record


class RecentRecords:
    """A ring of the last `size` records of a batch of environments, without their observations."""

    def __init__(self, size: int):
        self._size = size
        self._ring: Any = None

    def put(self, tick: int, record: Record) -> None:
        """Adds the record of a tick, leaves `[B, ...]`."""
        record = record._replace(observation=())
        if self._ring is None:
            self._ring = tree.map_structure(
                lambda leaf: np.zeros((self._size, *np.shape(leaf)), np.asarray(leaf).dtype), record
            )
        for column, leaf in zip(tree.flatten(self._ring), tree.flatten(record), strict=True):
            column[tick % self._size] = leaf

    def get(self, ticks: np.ndarray, envs: np.ndarray) -> Record:
        """The records at ticks `[T, W]` of the environments `[W]`, leaves `[T, W, ...]`."""
        rows = ticks % self._size
        return tree.map_structure(lambda column: column[rows, envs], self._ring)
