"""Chosen infos of an episode as columns of its data set."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import CallboardError

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
