"""The newest weights of a learner in a Ray actor.  Does not import TensorFlow, so its process stays small."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....data import Version
from ...nodes.acting.weight_store import WeightStore

if TYPE_CHECKING:
    import numpy as np

    from ....agents.variables.weights import Snapshot


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
