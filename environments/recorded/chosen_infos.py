"""Infos that are recorded beside the timesteps: chosen by a user, taken out of the library's, columns of a data set."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import CallboardError
from ..batches.infos import EPISODES_TO_LOOK, Info, Infos, SoughtInfos, found, is_key, repeated
from .episode_columns import fits_in_file
from .native_values import part_name

_NUMBERS = frozenset([bool, int, float, np.bool_, np.float32, np.float64, np.int32, np.int64, np.uint8])


class _Form(NamedTuple):
    """Shape and dtype of the values of an info."""

    shape: tuple[int, ...]
    is_text: bool

    def __str__(self) -> str:
        return "text" if self.is_text else f"an array of shape {self.shape}" if self.shape else "a number"


_NUMBER = _Form((), False)


class InfoColumns:
    """Makes columns of infos, whose form stays what it was at first.

    Args:
      names: names of the infos.
      environment: name of the environment, for messages.
    """

    def __init__(self, names: Sequence[str], environment: str):
        self.names = tuple(names)
        self._environment = environment
        self._forms: dict[str, _Form] = {}

    def column(self, name: str, values: Sequence[Any]) -> np.ndarray:
        """Returns the values of an info at `T + 1` timesteps, None where it is missing, as an array `[T + 1, ...]`.

        A number that is missing is NaN, which makes floats of integers and bools; a text that is missing is empty.  If
        an info is missing at all timesteps of all episodes so far, it counts as a number.

        Raises:
          CallboardError: the values are no numbers, arrays of numbers or texts, or have another form than before.
        """
        form = self._forms.get(name)
        kinds = set(map(type, values))
        if len(kinds) == 1 and kinds <= _NUMBERS and (form is None or form == _NUMBER):
            self._forms[name] = _NUMBER
            return np.array(values)
        arrays = [None if value is None else self._array(name, value) for value in values]
        given = [array for array in arrays if array is not None]
        for array in given:
            own = _Form(array.shape, array.dtype.kind == "U")
            form = self._forms.setdefault(name, own)
            if own != form:
                raise CallboardError(
                    f"the info {name!r} of {self._environment} is {form} in one timestep, and {own} in another, which "
                    "cannot be recorded: leave it out of record_infos"
                )
        form = form or _NUMBER
        if form.is_text:
            return np.array(["" if array is None else str(array) for array in arrays])
        dtype = np.result_type(*(array.dtype for array in given)) if given else np.dtype(np.float32)
        if len(given) < len(arrays):
            dtype = np.promote_types(dtype, np.float32)
        column = np.full((len(arrays), *form.shape), np.nan if dtype.kind == "f" else 0, dtype)
        for row, value in enumerate(arrays):
            if value is not None:
                column[row] = value
        return column

    def _array(self, name: str, value: Any) -> np.ndarray:
        try:
            array = np.asarray(value)
        except ValueError:  # Lists of different lengths.
            array = np.array(None)
        if array.dtype.kind not in "biuf" and not (array.dtype.kind == "U" and array.ndim == 0):
            what = f"the info {name!r} of {self._environment} is of type {type(value).__name__}"
            fix = "leave it out of record_infos"
            if isinstance(value, dict):
                fix = f"name its parts, such as {name}.{next(iter(value), 'part')}, or {fix}"
            raise CallboardError(f"{what}, not a number, an array of numbers or a text: {fix}")
        return array


_VALUE_BYTES = 32
"""Memory of a number or another small object."""
_CONSTANTS = frozenset([type(None), bool, int, float, str])


class TimestepInfos(NamedTuple):
    """The chosen infos of a timestep of B environments: for each name, the value of each environment or None."""

    followed: list[list[Any]]
    """`[names, B]`, those of the action just taken."""
    begun: list[list[Any]]
    """`[names, B]`, those of the reset of episodes that begin; no lists where none begins."""

    @property
    def nbytes(self) -> int:
        """About how much memory they take."""
        return sum(getattr(value, "nbytes", _VALUE_BYTES) for values in self.followed for value in values)


class ChosenInfos:
    """Takes the chosen infos out of those of each timestep, in the thread that steps.

    Arrays are copied, since many environments change and return the same ones.

    Args:
      names: keys of infos, see `parse_record_infos`.
      environment: name of the environment, for messages.
      notify: takes a line for the user about names that never appear.
    """

    def __init__(self, names: Sequence[str], environment: str, notify: Callable[[str], object]):
        self.names = tuple(names)
        self.environment = environment
        self._sought = SoughtInfos(names, "the recorded info")
        self._notify = notify
        self._steps = 0
        self._episodes = 0

    def begin(self, infos: Infos) -> TimestepInfos:
        """Returns those of a timestep that follows a reset of the whole batch."""
        self._look(infos.begun)
        return TimestepInfos([], self._columns(infos.begun))

    def step(self, infos: Infos, first: np.ndarray) -> TimestepInfos:
        """Returns those of a timestep that follows an action; `first` is bool `[B]`, where an episode begins."""
        self._steps += 1
        begins = first.any()
        if self._sought.missing:
            self._look(infos.followed)
            if begins:
                self._look(infos.begun)
                self._episodes += int(first.sum())
                if self._episodes >= EPISODES_TO_LOOK:
                    self.report_missing()
        return TimestepInfos(self._columns(infos.followed), self._columns(infos.begun) if begins else [])

    def report_missing(self) -> None:
        """Passes on a line about names that have not appeared so far, once, if there have been steps."""
        missing = self._sought.describe_missing() if self._steps else ""
        if missing:
            self._notify(missing)

    def _look(self, infos: Sequence[Info]) -> None:
        for info in infos:
            if info:
                self._sought.look(info)

    def _columns(self, infos: Sequence[Info]) -> list[list[Any]]:
        return [
            [
                value if type(value) in _CONSTANTS else _kept(value)
                for value in ([found(info, name) for info in infos] if "." in name else [i.get(name) for i in infos])
            ]
            for name in self.names
        ]


def parse_record_infos(texts: str | Sequence[str]) -> tuple[str, ...]:
    """Parses names of infos to record: keys, or `a.b` for the key `b` in a mapping `a`.

    Args:
      texts: a list, or text with commas between the names.

    Raises:
      CallboardError: one is empty, named twice, or no name that a file of a data set can hold.
    """
    joined = texts if isinstance(texts, str) else ",".join(texts)
    names = tuple(name.strip() for name in joined.split(",")) if joined else ()
    for name in names:
        if not is_key(name):
            raise CallboardError(f"record_infos: {name!r} names no key of the environment's info")
        if not fits_in_file(part_name(name)):
            raise CallboardError(f"record_infos: no file of a data set can hold the name {name!r}: leave it out")
    twice = repeated([part_name(name) for name in names])
    if twice is not None:
        raise CallboardError(f"record_infos: {twice!r} is named twice, where a slash counts as a dot: leave one out")
    return names


def _kept(value: Any) -> Any:
    """Returns a value that the environment does not change later."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return copy.deepcopy(value) if isinstance(value, list | tuple) else value
