"""How weights travel from the learner to those who act with them."""

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from ..data import Version
from .compiled import CompiledFunction

Snapshot = tuple[tuple[int, int], list[np.ndarray]]


class WeightSource(Protocol):
    """Where weights come from: a learner, or a client of one."""

    def get_variables(self, have: tuple[int, int] | None) -> Snapshot | None:
        """The newest version and its values in the order of `Policy.variables`; None if it is the one at hand."""


class WeightClient:
    """Keeps a policy's variables up to date.

    `fetch` may run in a thread of its own while the policy acts; `apply` puts what it brought into the variables,
    between two ticks.

    Args:
      source: where weights come from.
      variables: of the policy.
    """

    def __init__(self, source: WeightSource, variables: Sequence[tf.Variable]):
        self._source = source
        self._variables = variables
        # One call for all of them: a variable at a time takes five times as long.
        self._assign = CompiledFunction(self._assign_all, [tf.TensorSpec(one.shape, one.dtype) for one in variables])
        self._lock = threading.Lock()
        self._fetched: Snapshot | None = None
        self._newest: tuple[int, int] | None = None
        self.version: Version | None = None
        """The version that the variables hold; None before the first."""

    def reconnect(self, source: WeightSource) -> None:
        """Fetches from another source from now on."""
        self._source = source

    def fetch(self) -> None:
        """Asks the source for weights newer than those already fetched."""
        snapshot = self._source.get_variables(self._newest)
        if snapshot is not None:
            with self._lock:
                self._fetched = snapshot
                self._newest = (snapshot[0][0], snapshot[0][1])

    def apply(self) -> bool:
        """Assigns what was fetched last; False if there is nothing new."""
        with self._lock:
            snapshot, self._fetched = self._fetched, None
        if snapshot is None:
            return False
        version, values = snapshot
        self._assign(values)
        self.version = Version(*version)
        return True

    @property
    def waiting(self) -> bool:
        """Whether weights were fetched that are not applied yet."""
        return self._fetched is not None

    def _assign_all(self, values: Sequence[tf.Tensor]) -> tuple[()]:
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)
        return ()
