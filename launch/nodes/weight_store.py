"""The newest weights of a learner, served to clients that long-poll for another version.

Does not import TensorFlow, so a process that only keeps weights stays small.
"""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...data import Version

if TYPE_CHECKING:
    from ...agents.weights import Snapshot


class WeightStore:
    """Holds one snapshot of the weights.  All methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._version: Version | None = None
        self._packed = np.zeros(0, np.uint8)
        self._wanted = True

    def version(self) -> Version | None:
        """Returns the version of the snapshot; None if there is none yet."""
        return self._version

    def put(self, version: Version, packed: np.ndarray) -> None:
        """Replaces the snapshot.

        Args:
          version: version of the weights.
          packed: their bytes, see `agents.weights.pack_weights`.
        """
        with self._changed:
            self._version, self._packed, self._wanted = version, packed, False
            self._changed.notify_all()

    def get(self, have: Sequence[int] | None, patience: float) -> "Snapshot | None":
        """Returns the snapshot once its version is another than `have`; None if it is not within `patience` seconds."""
        known = None if have is None else tuple(have)
        with self._changed:
            self._wanted = True
            if not self._changed.wait_for(lambda: self._version not in (None, known), patience):
                return None
            assert self._version is not None
            # The caller will request the next version too.
            self._wanted = True
            return (self._version.incarnation, self._version.step), self._packed
