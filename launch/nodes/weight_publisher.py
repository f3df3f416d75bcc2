"""Snapshots of the learner's weights, served to actors."""

import logging
from collections.abc import Sequence

import tensorflow as tf

from ...agents.weights import Unpacking, pack_weights
from ...data import Version
from ...deadlines import Deadline
from .weight_store import WeightStore

_SECONDS = 0.01
"""Minimum time between snapshots while learner steps run back to back.  Actors do not poll faster."""


class WeightPublisher(WeightStore):
    """Serves a consistent snapshot of the weights, taken between learner steps, and only after a request."""

    def __init__(self) -> None:
        super().__init__()
        self._incarnation = 0
        self._next_snapshot = Deadline(0.0)
        self._parts: Unpacking | None = None

    def begin(self, incarnation: int) -> None:
        self._incarnation = incarnation

    def due(self, soon_again: bool = False) -> bool:
        """Returns whether a snapshot was requested; if `soon_again`, at most once every few milliseconds."""
        return self._wanted and not (soon_again and not self._next_snapshot.has_passed)

    def publish_if_due(self, step: int, variables: Sequence[tf.Variable], soon_again: bool = False) -> None:
        """Takes a snapshot if one is `due`.

        Raises:
          NotFiniteError: a weight is not finite; the previous snapshot continues to be served.
        """
        if not self.due(soon_again):
            return
        self._next_snapshot.restart(_SECONDS)
        self.publish(step, variables)

    def publish(self, step: int, variables: Sequence[tf.Variable]) -> Version:
        """Takes a snapshot, requested or not, and returns its version.

        Raises:
          NotFiniteError: a weight is not finite; the previous snapshot continues to be served.
        """
        packed = pack_weights(variable.numpy() for variable in variables)
        if self._parts is None:
            self._parts = Unpacking(variables)
        self._parts.check_finite(packed)
        version = Version(self._incarnation, step)
        self.put(version, packed)
        logging.debug("published the weights of learner step %d", step)
        return version
