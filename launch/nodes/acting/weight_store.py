"""The newest weights of a learner, served to clients that long-poll for another version.

Does not import TensorFlow, so a process that only keeps weights stays small.
"""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....data import Version
from .held_snapshots import HeldSnapshots

if TYPE_CHECKING:
    import numpy as np

    from ....agents.variables.weights import Snapshot


class WeightStore:
    """Holds one snapshot of the weights.  All methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._version: Version | None = None
        self._packed: Any = None
        self._waiting = 0
        self._held = HeldSnapshots()

    def version(self) -> Version | None:
        """Returns the version of the snapshot; None if there is none yet."""
        return self._version

    @property
    def is_waited_for(self) -> bool:
        """Whether a client waits for another snapshot now."""
        return self._waiting > 0

    def put(self, version: Version, packed: Any) -> None:
        """Replaces the snapshot.

        Args:
          version: version of the weights.
          packed: their bytes, see `agents.weights.pack_weights`, or what a subclass makes them from.
        """
        with self._changed:
            self._version, self._packed = version, packed
            self._changed.notify_all()

    def get(
        self, have: Sequence[int] | None, patience: float, most: int | None = None
    ) -> "Snapshot | tuple[tuple[int, int], int] | None":
        """Returns the snapshot once its version is another than `have`; None if it is not within `patience` seconds.

        A snapshot of more than `most` bytes is kept for `part`, and their number comes in its place.
        """
        snapshot = self._wait(have, patience)
        if snapshot is None:
            return None
        version, packed = snapshot[0], self._bytes(snapshot[1])
        if packed is None or most is None or len(packed) <= most:
            return None if packed is None else (version, packed)
        return self._held.begin(version, packed, None if have is None else tuple(have))

    def part(self, version: Sequence[int], offset: int, size: int) -> "np.ndarray | None":
        """Returns at most `size` bytes of a snapshot that `get` has kept; None if it is no longer kept."""
        return self._held.part((version[0], version[1]), offset, size)

    def _bytes(self, put: Any) -> "np.ndarray | None":
        """Returns the bytes of what was put; None if they are not to be served."""
        return put

    def _wait(self, have: Sequence[int] | None, patience: float) -> tuple[tuple[int, int], Any] | None:
        """Waits as `get` does; returns the version, and what was put."""
        known = None if have is None else tuple(have)
        with self._changed:
            self._waiting += 1
            try:
                if not self._changed.wait_for(lambda: self._version not in (None, known), patience):
                    return None
            finally:
                self._waiting -= 1
            assert self._version is not None
            return (self._version.incarnation, self._version.step), self._packed
