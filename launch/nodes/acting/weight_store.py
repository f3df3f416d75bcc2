"""The newest weights of a learner, served to clients that long-poll for another version.

Does not import TensorFlow, so a process that only keeps weights stays small.
"""

import dataclasses
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ....data import Version
from ....runtime.deadlines import Clock

if TYPE_CHECKING:
    import numpy as np

    from ....agents.variables.weights import Snapshot

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


class WeightStore:
    """Holds one snapshot of the weights.  All methods may be called from any thread.

    Args:
      patience: seconds for which a client waits for new weights.  Shutdown waits for pending calls.
    """

    served: ClassVar[tuple[str, ...]] = ("get_variables", "get_part")

    def __init__(self, patience: float = 0.5) -> None:
        self._patience = patience
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

    def get_variables(
        self, have: Sequence[int] | None, most: int | None = None, patience: float | None = None
    ) -> "Snapshot | Announcement | None":
        """Returns the snapshot once its version is another than `have`; None if it is not within a short wait.

        The long-poll delivers new weights as soon as they exist, not only at the caller's next request.  A snapshot of
        more than `most` bytes is kept for `get_part`; their number comes in its place.

        Args:
          have: the version of the caller's weights; None if it has none.
          most: see above; None for snapshots of any size.
          patience: seconds to wait instead of those of the store.
        """
        snapshot = self._wait(have, self._patience if patience is None else patience)
        if snapshot is None:
            return None
        version, packed = snapshot[0], self._bytes(snapshot[1])
        if packed is None or most is None or len(packed) <= most:
            return None if packed is None else (version, packed)
        return self._held.begin(version, packed, None if have is None else tuple(have))

    def get_part(self, version: Sequence[int], offset: int, size: int) -> "np.ndarray | None":
        """Returns at most `size` bytes of a snapshot that `get_variables` has announced; None if it is not kept."""
        return self._held.part((version[0], version[1]), offset, size)

    def _bytes(self, put: Any) -> "np.ndarray | None":
        """Returns the bytes of what was put; None if they are not to be served."""
        return put

    def _wait(self, have: Sequence[int] | None, patience: float) -> tuple[tuple[int, int], Any] | None:
        """Waits as `get_variables` does; returns the version, and what was put."""
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


class ParameterServer(WeightStore):
    """Serves weights as a learner node does, so that actors need not reach the learner, which may end before them.

    Args:
      saved: the weights to begin with.  After a restart by Ray it has these until the learner publishes again.
    """

    def __init__(self, saved: "Snapshot | None" = None):
        super().__init__()
        if saved is not None:
            self.publish(*saved)

    def publish(self, version: Sequence[int], packed: "np.ndarray") -> None:
        """Replaces the weights, unless the new ones are older; the arguments are the parts of a `Snapshot`."""
        newest = self.version()
        if newest is None or tuple(version) >= newest:
            self.put(Version(*version), packed)
