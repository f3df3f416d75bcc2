"""The learner's weights, as those who act are given them."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ...agents.weights import Snapshot, Unpacking, pack_weights
from ...data import Version

_SECONDS = 0.01
"""Between two copies of the weights while steps follow each other at once: nobody asks more often."""


class WeightPublisher:
    """A consistent copy of the weights for those who ask, made between two steps and only when somebody has asked."""

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
        """Whether weights are wanted; if the next are on their way, then only after some milliseconds."""
        return self._wanted and not (soon_again and time.monotonic() < self._next)

    def offer(self, step: int, variables: Sequence[tf.Variable], soon_again: bool = False) -> None:
        """Copies the weights if they are `due`.

        Raises:
          NotFiniteError: one of them is not finite; who asks gets those before.
        """
        if not self.due(soon_again):
            return
        self._next = time.monotonic() + _SECONDS
        self.publish(step, variables)

    def publish(self, step: int, variables: Sequence[tf.Variable]) -> Version:
        """Copies the weights, whether they are wanted or not; gives their version.

        Raises:
          NotFiniteError: one of them is not finite; who asks gets those before.
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
        """Waits for up to `patience` seconds for weights other than those at hand."""
        with self._changed:
            self._wanted = True
            if not self._changed.wait_for(lambda: self._version not in (None, have), patience):
                return None
            assert self._version is not None
            # Who has got these will want the next.
            self._wanted = True
            return (self._version.incarnation, self._version.step), self._packed
