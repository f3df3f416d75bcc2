"""Snapshots of the learner's weights, served to actors."""

import logging
import threading
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ....agents.variables.finite_checks import NotFiniteError
from ....agents.variables.weights import PackedVariables, Unpacking
from ....data import Version
from ....runtime.deadlines import Deadline
from ..acting.weight_store import WeightStore

_SECONDS = 0.005
"""Minimum time between snapshots while learner steps run back to back.  An actor polls half as often."""


class WeightPublisher(WeightStore):
    """Serves a consistent snapshot of the weights, taken between learner steps, and only where one is waited for.

    The learner's thread only starts one compiled call, which copies all weights into one buffer on their device.  The
    first client that receives the snapshot transfers and checks it, in its own thread.

    Args:
      every: learner steps between two snapshots; with more than 1 they are taken whether they are waited for or not.
      patience: as in `WeightStore`.
    """

    def __init__(self, every: int = 1, patience: float = 0.5) -> None:
        super().__init__(patience)
        self._every = every
        self._incarnation = 0
        self._step: int | None = None
        self._next_snapshot = Deadline(0.0)
        self._pack: PackedVariables | None = None
        self._unpack: Unpacking | None = None
        self._failure: NotFiniteError | None = None

    def begin(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._step = self._failure = None

    def due(self, step: int) -> bool:
        """Returns whether a snapshot is to be taken after a learner step, or one has failed.

        That is where a client waits for one, at most once every few milliseconds, or after every so many steps.
        """
        if self._failure is not None:
            return True
        if self._every > 1:
            return self._step is None or step >= self._step + self._every
        return self.is_waited_for and self._next_snapshot.has_passed

    def publish_if_due(self, step: int, variables: Sequence[tf.Variable]) -> None:
        """Takes a snapshot if one is `due`.  It is checked when a client receives it, see `raise_failure`."""
        if self.due(step):
            self._take(step, variables)

    def publish_if_changed(self, step: int, variables: Sequence[tf.Variable]) -> None:
        """Takes a snapshot unless the newest is of this step, for a learner that has nothing else to do."""
        if not self.has(step):
            self._take(step, variables)

    def has(self, step: int) -> bool:
        """Returns whether the newest snapshot is of this learner step, and is not known to be bad."""
        return step == self._step and self._failure is None

    def publish(self, step: int, variables: Sequence[tf.Variable]) -> Version:
        """Takes a snapshot, waited for or not, and returns its version.

        Raises:
          NotFiniteError: a weight is not finite; the snapshot is not served.
        """
        version = self._take(step, variables)
        self.get_variables(None, patience=0.0)
        self.raise_failure()
        return version

    def _bytes(self, put: "_Taken") -> np.ndarray | None:
        """As that of `WeightStore`; None where a weight of the snapshot is not finite."""
        try:
            return put.array()
        except NotFiniteError as error:
            self._failure = error
            return None

    def raise_failure(self) -> None:
        """Raises the `NotFiniteError` of a snapshot in which a weight was not finite, if there was one."""
        if self._failure is not None:
            raise self._failure

    def _take(self, step: int, variables: Sequence[tf.Variable]) -> Version:
        self._next_snapshot.restart(_SECONDS)
        if self._pack is None or self._unpack is None:
            self._pack, self._unpack = PackedVariables(variables), Unpacking(variables)
        self._step = step
        version = Version(self._incarnation, step)
        self.put(version, _Taken(self._pack(), self._unpack.check_finite))
        logging.debug("published the weights of learner step %d", step)
        return version


class _Taken:
    """A snapshot that is transferred and checked once, when it is first needed."""

    def __init__(self, packed: tf.Tensor, check: Callable[[np.ndarray], None]):
        self._packed = packed
        self._check = check
        self._lock = threading.Lock()
        self._array: np.ndarray | None = None

    def array(self) -> np.ndarray:
        """Returns the bytes; raises `NotFiniteError` where a weight is not finite."""
        with self._lock:
            if self._array is None:
                array = self._packed.numpy()
                self._check(array)
                self._array = array
            return self._array
