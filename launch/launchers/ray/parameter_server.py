"""The newest weights of a learner in a Ray actor.  Does not import TensorFlow, so its process stays small."""

from typing import TYPE_CHECKING

from ....data import Version
from ...nodes.weight_store import WeightStore

if TYPE_CHECKING:
    import numpy as np

    from ....agents.weights import Snapshot

_HOLD_SECONDS = 0.5
"""Long-poll timeout of `get_variables`."""


class ParameterServer:
    """Serves weights as a learner node does, so that actors need not reach the learner, which may end before them.

    Args:
      saved: the weights to begin with.  After a restart by Ray it has these until the learner publishes again.
    """

    def __init__(self, saved: "Snapshot | None" = None):
        self._weights = WeightStore()
        if saved is not None:
            self.publish(*saved)

    def publish(self, version: tuple[int, int], packed: "np.ndarray") -> None:
        """Replaces the weights, unless the new ones are older.

        Args:
          version: incarnation of the learner, and its step.
          packed: the values of `Policy.variables`, by `agents.weights.pack_weights`.
        """
        if self._weights.version is None or tuple(version) >= self._weights.version:
            self._weights.put(Version(*version), packed)

    def get_variables(self, have: tuple[int, int] | None) -> "Snapshot | None":
        """Returns the newest weights, or None if there are none other than version `have` within a short wait."""
        return self._weights.get(None if have is None else Version(*have), _HOLD_SECONDS)

    def version(self) -> Version | None:
        """Returns the version of the weights; None if there are none."""
        return self._weights.version
