"""Snapshots of the learner's weights, served to actors."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ...agents.weights import Snapshot, Unpacking, pack_weights
from ...data import Version

_SECONDS = 0.01
"""Minimum time between snapshots while learner steps run back to back.  Actors do not poll faster."""


class WeightPublisher:
    """Serves a consistent snapshot of the weights, taken between learner steps, and only after a request."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._incarnation = 0
        self._version: Version | None = None
        self._packed = np.zeros(0, np.uint8)
        self._wanted = True
        self._next = 0.0
        self._parts: Unpacking | None = None

    def begin(self, incarnation: int) -> None:
        self._incarnation = incarnation

    def due(self, soon_again: bool = False) -> bool:
        """Returns whether a snapshot was requested; if `soon_again`, at most once every few milliseconds."""
        return self._wanted and not (soon_again and time.monotonic() < self._next)

    def offer(self, step: int, variables: Sequence[tf.Variable], soon_again: bool = False) -> None:
        """Takes a snapshot if one is `due`.

        Raises:
          NotFiniteError: a weight is not finite; the previous snapshot continues to be served.
        """
        if not self.due(soon_again):
            return
        self._next = time.monotonic() + _SECONDS
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
        with self._changed:
            self._version = Version(self._incarnation, step)
            self._packed = packed
            self._wanted = False
            self._changed.notify_all()
            return self._version

    def get(self, have: Version | None, patience: float) -> Snapshot | None:
        """Waits up to `patience` seconds for weights of a version other than `have`; returns None if there are none."""
        with self._changed:
            self._wanted = True
            if not self._changed.wait_for(lambda: self._version not in (None, have), patience):
                return None
            assert self._version is not None
            # The caller will request the next version too.
            self._wanted = True
            return (self._version.incarnation, self._version.step), self._packed
