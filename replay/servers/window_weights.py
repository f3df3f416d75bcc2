"""Weights of the windows in a shard's items of several, which change as the learner updates priorities.

Reverb has one priority for an item, the sum of these weights; see `reading.whole_batches`.  An item is written with the
first weights of its windows.  From when it is first sampled, the current ones are here, in the process of the shard's
server: every learner sees the updates of all others, and a learner that restarts loses none.
"""

import pathlib
import threading
from collections.abc import Callable

import numpy as np

from ...errors import CallboardError
from ...files.guarded_files import read_arrays, write_arrays

SetPriorities = Callable[[str, dict[int, float]], None]
"""Sets the priorities of a table's items by their keys, and ignores keys of items that are gone."""

_FILE = "window_weights.npz"
_AT_ONCE = 10_000
"""Priorities that are set in one call after a restart."""


class WindowWeights:
    """The weights of the windows of one table, by the keys of their items.

    Room for twice as many items as the table has is enough.  The table evicts the oldest: while an item is in it, at
    most one table of others is there already, and one is inserted.  So the oldest entry is of an item that is gone.

    All methods may be called from any thread.  Keys are the bytes of uint64, in native order as all arrays here, since
    Courier takes no arrays.

    Args:
      table: the table's name.
      windows: windows in an item (W).
      items: maximum number of items in the table.
      exponent: alpha, a window's weight is priority^alpha.
      set_priorities: sets priorities of the table's items.
    """

    def __init__(self, table: str, windows: int, items: int, exponent: float, set_priorities: SetPriorities):
        self._table = table
        self._exponent = exponent
        self._set_priorities = set_priorities
        self._room = 2 * items
        self._lock = threading.Lock()
        # A ring: the next entry replaces the oldest.
        self._entries: dict[int, int] = {}
        self._keys = np.zeros(self._room, np.uint64)
        self._weights = np.zeros((self._room, windows), np.float32)
        self._made = 0

    def window_weights(self, keys: bytes, first: bytes) -> np.ndarray:
        """Returns the current weights of the windows of items, float32 `[N, W]`.

        Args:
          keys: uint64 `[N]`.
          first: float32 `[N, W]`, the weights that the items were written with.
        """
        first_weights = np.frombuffer(first, np.float32).reshape(-1, self._weights.shape[1])
        with self._lock:
            entries = [
                self._entry(key, weights)
                for key, weights in zip(np.frombuffer(keys, np.uint64).tolist(), first_weights, strict=True)
            ]
            return self._weights[entries]

    def update_windows(self, keys: bytes, envs: bytes, priorities: bytes) -> None:
        """Changes the priorities of windows, and with them those of their items.

        Args:
          keys: uint64 `[N]`, the items of the windows.
          envs: int32 `[N]`, which of their windows.
          priorities: float32 `[N]`.
        """
        items, of_item = np.unique(np.frombuffer(keys, np.uint64), return_inverse=True)
        weights = np.power(np.frombuffer(priorities, np.float32), self._exponent)
        with self._lock:
            entries = np.array([self._entries.get(key, -1) for key in items.tolist()])
            changed = entries[of_item]
            known = changed >= 0
            self._weights[changed[known], np.frombuffer(envs, np.int32)[known]] = weights[known]
            self._set(entries[entries >= 0])

    def save(self, directory: pathlib.Path) -> None:
        """Writes a file to a checkpoint of the shard, after Reverb has written its own: no item has newer weights."""
        with self._lock:
            entries = np.fromiter(self._entries.values(), np.int64)
            keys, weights = self._keys[entries], self._weights[entries]
        write_arrays(directory / _FILE, keys=keys, weights=weights, exponent=self._exponent)

    def restore(self, directory: pathlib.Path) -> None:
        """Reads what `save` wrote, and sets the priorities of the table's items accordingly.

        Raises:
          CallboardError: the weights are of another exponent.
        """
        saved = read_arrays(directory / _FILE)
        keys, weights, exponent = saved["keys"], saved["weights"], float(saved["exponent"])
        if exponent != self._exponent:
            raise CallboardError(
                f"the replay checkpoint was made with another agent.replay.priority_exponent, {exponent:g} instead of "
                f"{self._exponent:g}: take the old settings, or remove it to begin with an empty replay"
            )
        with self._lock:
            entries = [self._entry(key, own) for key, own in zip(keys.tolist(), weights, strict=True)]
            for begin in range(0, len(entries), _AT_ONCE):
                self._set(np.array(entries[begin : begin + _AT_ONCE]))

    def _entry(self, key: int, weights: np.ndarray) -> int:
        """Returns the index of an item's entry, which is made with these weights if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._made % self._room
            if self._made >= self._room:
                del self._entries[int(self._keys[entry])]
            self._entries[key] = entry
            self._keys[entry] = key
            self._weights[entry] = weights
            self._made += 1
        return entry

    def _set(self, entries: np.ndarray) -> None:
        """Sets the priorities of items to the sums of their windows' weights."""
        if len(entries):
            sums = self._weights[entries].sum(axis=1, dtype=np.float64)
            self._set_priorities(self._table, dict(zip(self._keys[entries].tolist(), sums.tolist(), strict=True)))
