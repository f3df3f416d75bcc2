"""How weights travel from the learner to those who act with them: as one piece of bytes."""

import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from ..data import Version
from .compiled import CompiledFunction

Snapshot = tuple[tuple[int, int], np.ndarray]
"""A version, and what `pack_weights` made of its values in the order of `Policy.variables`."""


class WeightSource(Protocol):
    """Where weights come from: a learner, or a client of one."""

    def get_variables(self, have: tuple[int, int] | None) -> Snapshot | None:
        """The newest version and its values; None if it is the one at hand."""


def pack_weights(values: Iterable[np.ndarray]) -> np.ndarray:
    """The bytes of all values, one after the other, uint8 `[N]`.

    What is sent costs time for every array, much more than for every byte.
    """
    return np.concatenate([np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in values])


def unpack_weights(packed: np.ndarray, variables: Sequence[tf.Variable]) -> list[np.ndarray]:
    """The values that `pack_weights` has packed, for variables of their shapes and dtypes; views of its bytes.

    Raises:
      ValueError: they are those of other variables.
    """
    sizes = [variable.dtype.size * variable.shape.num_elements() for variable in variables]
    if sum(sizes) != len(packed):
        raise ValueError(f"The policy's weights have {sum(sizes)} bytes, and those that came have {len(packed)}.")
    ends = np.cumsum(sizes).tolist()
    return [
        packed[end - size : end].view(variable.dtype.as_numpy_dtype).reshape(variable.shape)
        for variable, size, end in zip(variables, sizes, ends, strict=True)
    ]


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
        version, packed = snapshot
        self._assign(unpack_weights(packed, self._variables))
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
