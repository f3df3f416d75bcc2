"""How weights travel from the learner to those who act with them: as one piece of bytes."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from ..data import Version
from .fast_function import CompiledFunction
from .finite_checks import all_finite, check_weights

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


class Unpacking:
    """Takes apart what `pack_weights` has packed.

    Args:
      variables: the values are of their shapes and dtypes, in their order.
    """

    def __init__(self, variables: Sequence[tf.Variable]):
        self._names = [variable.name for variable in variables]
        self._parts: list[tuple[slice, np.dtype, tuple[int, ...]]] = []
        self._runs: list[tuple[slice, np.dtype]] = []
        self._bytes = 0
        for variable in variables:
            begin, dtype = self._bytes, np.dtype(variable.dtype.as_numpy_dtype)
            self._bytes += dtype.itemsize * variable.shape.num_elements()
            self._parts.append((slice(begin, self._bytes), dtype, tuple(variable.shape)))
            if self._runs and self._runs[-1][1] == dtype:
                begin = self._runs.pop()[0].start
            self._runs.append((slice(begin, self._bytes), dtype))

    def __call__(self, packed: np.ndarray) -> list[np.ndarray]:
        """The values; views of the bytes.

        Raises:
          ValueError: they are those of other variables.
        """
        if self._bytes != len(packed):
            raise ValueError(f"The policy's weights have {self._bytes} bytes, and those that came have {len(packed)}.")
        return [packed[part].view(dtype).reshape(shape) for part, dtype, shape in self._parts]

    def check_finite(self, packed: np.ndarray) -> None:
        """Looks at all values; at those of one dtype that lie side by side at once.

        Raises:
          NotFiniteError: names the first that is not finite.
        """
        if not all(all_finite(packed[run].view(dtype)) for run, dtype in self._runs):
            check_weights(self._names, self(packed))


class WeightClient:
    """Keeps a policy's variables up to date.

    `fetch` may run in a thread of its own while the policy acts; `apply` puts what it brought into the variables,
    between two timesteps.

    Args:
      source: where weights come from.
      variables: of the policy.
    """

    def __init__(self, source: WeightSource, variables: Sequence[tf.Variable]):
        self._source = source
        self._variables = variables
        self._unpack = Unpacking(variables)
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
        self._assign(self._unpack(packed))
        self.version = Version(*version)
        return True

    @property
    def waiting(self) -> bool:
        """Whether weights were fetched that are not applied yet."""
        return self._fetched is not None

    def keep_fetching(self, fetch: Callable[[], object], pause: float, stop: threading.Event) -> None:
        """Fetches again and again, in a thread of its own, until `stop`.

        Not while those that came last still wait for the end of a timestep: where timesteps are slow, and actors many,
        the source would spend its time with answers that nobody needs.

        Args:
          fetch: calls `fetch`, and bears what goes wrong.
          pause: seconds between two calls.
          stop: ends it.
        """

        def fetch_until_stop() -> None:
            while not stop.wait(pause):
                if not self.waiting:
                    fetch()

        threading.Thread(target=fetch_until_stop, name="weights", daemon=True).start()

    def _assign_all(self, values: Sequence[tf.Tensor]) -> tuple[()]:
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)
        return ()
