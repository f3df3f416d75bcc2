"""Snapshots that clients fetch in parts, kept until these have them."""

import dataclasses
import threading
import time
from typing import TYPE_CHECKING

from ....deadlines import Clock

if TYPE_CHECKING:
    import numpy as np

_MOST = 4
_IDLE_SECONDS = 60.0
"""Time without a call after which a client is taken to have ended."""

Announcement = tuple[tuple[int, int], int]
"""Version and number of bytes of weights that are fetched in parts."""


@dataclasses.dataclass
class _Held:
    packed: "np.ndarray"
    used: float
    begun: int = 0
    finished: int = 0


class HeldSnapshots:
    """A bounded number of snapshots.  Clients that begin while all are in use get the newest of these.

    All methods may be called from any thread.

    Args:
      clock: returns seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], _Held] = {}

    def begin(
        self, version: tuple[int, int], packed: "np.ndarray", have: tuple[int, ...] | None
    ) -> Announcement | None:
        """Begins a transfer.

        Args:
          version: version of the newest snapshot.
          packed: its bytes.
          have: the version that the client has.

        Returns:
          The version to fetch and its number of bytes; None if the client has to wait until another one has its own.
        """
        with self._lock:
            now = self._clock()
            if version not in self._held:
                for done in [key for key, held in self._held.items() if _is_done(held, now)]:
                    del self._held[done]
                if len(self._held) < _MOST:
                    self._held[version] = _Held(packed, now)
                else:
                    version = max(self._held)
                    if have is not None and version <= have:
                        return None
            held = self._held[version]
            held.used, held.begun = now, held.begun + 1
            return version, len(held.packed)

    def part(self, version: tuple[int, int], offset: int, size: int) -> "np.ndarray | None":
        """Returns at most `size` bytes of a snapshot from `offset` on; None if it is no longer kept."""
        with self._lock:
            held = self._held.get(version)
            if held is None:
                return None
            held.used = self._clock()
            held.finished += offset + size >= len(held.packed)
            return held.packed[offset : offset + size]


def _is_done(held: _Held, now: float) -> bool:
    return held.finished >= held.begun or now > held.used + _IDLE_SECONDS
