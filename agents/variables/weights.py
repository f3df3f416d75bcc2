"""Transfer of weights from the learner to acting nodes, as a single array of bytes."""

import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from ...data import Version
from ..fast_function import CompiledFunction
from .array_parts import ArrayParts
from .finite_checks import all_finite, check_weights

Snapshot = tuple[tuple[int, int], np.ndarray]
"""A version, and the values of `Policy.variables` packed by `pack_weights`, in their order."""


class WeightSource(Protocol):
    """A source of weights: a learner, or a client of one."""

    def get_variables(self, have: tuple[int, int] | None, most: int) -> tuple[tuple[int, int], np.ndarray | int] | None:
        """Returns the newest version and its values; None if that version is `have`.

        Of values of more than `most` bytes, it may return their number; they are then fetched with `get_part`.
        """

    def get_part(self, version: tuple[int, int], offset: int, size: int) -> np.ndarray | None:
        """Returns at most `size` bytes of a version from `offset` on; None if it has that version no more."""


def pack_weights(values: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the concatenated bytes of all values, uint8 `[N]`.

    The time to send arrays depends much more on their number than on their size.
    """
    return np.concatenate([np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in values])


class PackedVariables:
    """Packs the values of variables as `pack_weights` does, in one compiled call on their device.

    To read them one by one takes several times as long, and on a GPU one transfer for each.

    Args:
      variables: the variables.
    """

    def __init__(self, variables: Sequence[tf.Variable]):
        self._variables = variables
        self._pack = CompiledFunction(self._packed)

    def __call__(self) -> tf.Tensor:
        """Returns a copy of the current values, uint8 `[N]`, without waiting for it to be computed."""
        return self._pack()

    def _packed(self) -> tf.Tensor:
        runs = itertools.groupby(self._variables, key=lambda variable: variable.dtype)
        return tf.concat([_bytes_of(dtype, list(variables)) for dtype, variables in runs], axis=0)


def _bytes_of(dtype: tf.DType, variables: Sequence[tf.Variable]) -> tf.Tensor:
    """Returns the concatenated bytes of variables of one dtype, uint8 `[N]`."""
    values = tf.concat([tf.reshape(variable.read_value(), [-1]) for variable in variables], axis=0)
    return tf.cast(values, tf.uint8) if dtype == tf.bool else tf.reshape(tf.bitcast(values, tf.uint8), [-1])


class Unpacking:
    """Unpacks the values that `pack_weights` has packed.

    Args:
      variables: variables with the shapes and dtypes of the values, in the same order.
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
        """Returns the values, as views of the bytes.

        Raises:
          ValueError: the number of bytes does not match the variables.
        """
        if self._bytes != len(packed):
            raise ValueError(f"the policy's weights have {self._bytes} bytes, and those that came have {len(packed)}")
        return [packed[part].view(dtype).reshape(shape) for part, dtype, shape in self._parts]

    def check_finite(self, packed: np.ndarray) -> None:
        """Checks that all values are finite; adjacent values of the same dtype are checked together.

        Raises:
          NotFiniteError: a value is not finite; the message names the first such weight.
        """
        if not all(all_finite(packed[run].view(dtype)) for run, dtype in self._runs):
            check_weights(self._names, self(packed))


class WeightFetcher:
    """Fetches each newer version of weights from a source, large ones in parts.

    Args:
      source: the source of weights.
    """

    def __init__(self, source: WeightSource):
        self._source = source
        self.parts = ArrayParts()
        """The transfer of weights that are too large for one call."""
        self._incoming: tuple[int, int] | None = None
        self._newest: tuple[int, int] | None = None

    def receive(self, version: tuple[int, int], packed: np.ndarray) -> None:
        """Takes weights that have been fetched."""
        raise NotImplementedError

    def reconnect(self, source: WeightSource) -> None:
        """Replaces the source for all later fetches."""
        self._source = source

    def fetch(self, proceed: Callable[[], bool] = lambda: True) -> None:
        """Requests weights newer than those already fetched from the source.

        Large ones take a call for each part.  A fetch that fails continues with the next call, even if the source has
        newer ones by then.

        Args:
          proceed: called after every part; if it returns False, the rest is left to the next call.
        """
        try:
            self._fetch(proceed)
        except Exception:
            self.parts.shrink()
            raise

    def _fetch(self, proceed: Callable[[], bool]) -> None:
        packed: np.ndarray | int | None
        if self._incoming is None:
            snapshot = self._source.get_variables(self._newest, self.parts.whole_bytes)
            if snapshot is None:
                return
            version, packed = (snapshot[0][0], snapshot[0][1]), snapshot[1]
            if isinstance(packed, int):
                self.parts.begin(packed)
                self._incoming = version
        if self._incoming is not None:
            version = self._incoming
            packed = self.parts.receive(functools.partial(self._source.get_part, version), proceed)
            if packed is not None and not len(packed):
                return
            self._incoming = None
        if packed is not None:
            assert not isinstance(packed, int)
            self.receive(version, packed)
            self._newest = version


class WeightClient(WeightFetcher):
    """Keeps a policy's variables up to date.

    `fetch` may run in a separate thread while the policy acts; `apply` assigns the fetched weights to the variables
    between two timesteps.  Where something else than the variables is used, `take` comes in its place, and `assign`
    when the variables are read.

    Args:
      source: the source of weights.
      variables: the policy's variables.
    """

    def __init__(self, source: WeightSource, variables: Sequence[tf.Variable]):
        super().__init__(source)
        self._variables = variables
        self._unpack = Unpacking(variables)
        # One call for all variables: assigning them one by one takes five times as long.
        self._assign = CompiledFunction(self._assign_all, [tf.TensorSpec(one.shape, one.dtype) for one in variables])
        self._lock = threading.Lock()
        self._needed = threading.Event()
        self._fetched: Snapshot | None = None
        self._assigned: Version | None = None
        self._failure: Exception | None = None
        self.version: Version | None = None
        """The version of `values`; None before the first `apply` or `take`."""
        self.values: list[np.ndarray] = []
        """The newest values taken, read-only."""

    def receive(self, version: tuple[int, int], packed: np.ndarray) -> None:
        with self._lock:
            self._fetched = version, packed

    def apply(self) -> bool:
        """Assigns the weights that were fetched last; returns False if there are no new ones.

        Raises:
          Exception: the thread of `keep_fetching` has ended with it.
        """
        if not self.take():
            return False
        self.assign()
        return True

    def take(self) -> bool:
        """Makes the weights that were fetched last `values`; returns False if there are no new ones; see `apply`."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            snapshot, self._fetched = self._fetched, None
        if snapshot is None:
            return False
        version, packed = snapshot
        self.values = self._unpack(packed)
        self.version = Version(*version)
        logging.debug("took the weights of learner step %d", self.version.step)
        return True

    def assign(self) -> None:
        """Assigns `values` to the variables, unless that was done already."""
        if self._assigned != self.version:
            self._assign(self.values)
            self._assigned = self.version

    @property
    def waiting(self) -> bool:
        """Whether fetched weights have not been applied yet."""
        return self._fetched is not None

    def renew(self) -> None:
        """Drops weights that were fetched and not applied, and makes `keep_fetching` fetch at once.

        For a caller that has waited: the source may have newer ones.  `waiting` is true once they are here.
        """
        with self._lock:
            self._fetched = None
        self.need_newer()

    def need_newer(self) -> None:
        """Makes `keep_fetching` send its next request without a pause: the caller cannot act before it has others."""
        self._needed.set()

    def keep_fetching(self, fetch: Callable[[], object], pause: Callable[[], float], stop: threading.Event) -> None:
        """Fetches repeatedly in a background thread until `stop` is set.

        Does not fetch while fetched weights have not been applied: with many actors and slow timesteps, the source
        would spend its time on replies that are never used.

        Args:
          fetch: calls `self.fetch` and handles its errors.
          pause: returns the seconds between two calls, unless newer weights are needed.
          stop: ends the thread when set; errors of a fetch that was waiting then are ignored.
        """

        def fetch_until_stop() -> None:
            while not stop.is_set():
                self._needed.wait(pause())
                self._needed.clear()
                if not (self.waiting or stop.is_set()):
                    try:
                        fetch()
                    except Exception as error:
                        # The source may have ended, for good, while the last request was waiting.
                        if not stop.is_set():
                            self._failure = error
                        return

        threading.Thread(target=fetch_until_stop, name="weights", daemon=True).start()

    def _assign_all(self, values: Sequence[tf.Tensor]) -> tuple[()]:
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)
        return ()
