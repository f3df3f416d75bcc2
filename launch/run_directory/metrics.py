"""Metrics on disk: `metrics.jsonl` with one row per line, and the same values for TensorBoard.

Both stay small however long a run takes.  While `metrics.jsonl` is smaller than 8 MB, every row is written.  After
that, rows of the same kind are written at most every 4 s, from 16 MB on every 8 s, and so on.  With 2.8 kB per row, the
file reaches about 40 MB after a day, 70 MB after a month and 100 MB after a year, and TensorBoard's files slightly more
than twice that.
"""

import contextlib
import functools
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import tensorflow as tf

from ...files.guarded_files import open_regular, parse_json
from .file_errors import file_error
from .layout import RunDirectory
from .tensorboard_writer import TensorBoardWriter

_STEP_BYTES = 8 * 2**20
_ROW_SECONDS = 2.0
_LINE_END = b"\n"
_TAIL_BYTES = 2**20


class RowSink(Protocol):
    """Where rows also go."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Takes a row; returns at once and raises nothing."""

    def close(self) -> None:
        """Ends, after the rows that were taken."""


class MetricsWriter:
    """Appends rows of metrics to the run directory.  The step of a row is its `environment_steps`.

    If the disk is full or fails, rows are dropped until it accepts writes again.

    Args:
      run_directory: the run directory.
      notify: receives a line when writing begins to fail, and when it works again.
      clock: returns seconds.
      also: receives every row that is due, whether it could be written or not; it is closed too.
      settings: the run's settings by flat name, for TensorBoard.
    """

    def __init__(
        self,
        run_directory: RunDirectory,
        notify: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
        also: RowSink | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ):
        self._also = also
        self._rows = RowFile(run_directory.metrics)
        with contextlib.suppress(OSError):  # The first row reports it.
            run_directory.make(run_directory.tensorboard)
        self._tensorboard = TensorBoardWriter(run_directory.tensorboard, settings)
        self._notify = notify
        self._clock = clock
        self._failing = False
        self._last: dict[str, float] = {}

    def write(
        self,
        row: dict[str, Any],
        kind: str = "",
        always: bool = False,
        histograms: Mapping[str, Sequence[float]] = MappingProxyType({}),
    ) -> None:
        """Writes a row, unless the last one of its kind was written too recently.

        Args:
          row: values by name.
          kind: kind of the row; the interval applies to each kind separately.
          always: whether to ignore the interval.
          histograms: values by name whose distributions are shown in TensorBoard.
        """
        now = self._clock()
        if not always and kind in self._last and now - self._last[kind] < row_interval(self._rows.size):
            return
        self._last[kind] = now
        if self._also is not None:
            self._also.write(row)
        error = None
        for write in (self._rows.write, functools.partial(self._tensorboard.write, histograms=histograms)):
            try:
                write(row)
            except (OSError, tf.errors.OpError) as caught:
                error = error or caught
        if error is not None and not self._failing:
            self._notify(f"metrics could not be written: {file_error(error)}; the run continues without them")
        if error is None and self._failing:
            self._notify("metrics are written again")
        self._failing = error is not None

    def close(self) -> None:
        self._rows.close()
        self._tensorboard.close()
        if self._also is not None:
            self._also.close()


def row_interval(size: int) -> float:
    """Returns the seconds between rows of one kind in a file of `size` bytes."""
    steps = size // _STEP_BYTES
    return _ROW_SECONDS * 2.0**steps if steps else 0.0


class RowFile:
    """A file of JSON rows, opened for appending.

    Incomplete rows, left by a killed process or by a full disk, are removed.

    Args:
      path: path of the file.
    """

    def __init__(self, path: pathlib.Path):
        self._file = open(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), "ab", buffering=0)
        self.size = _end_of_rows(path)
        """Size of the file in bytes."""
        self._remove_rest()

    def write(self, row: dict[str, Any]) -> None:
        """Appends a row.

        Raises:
          OSError: the row was not written; the file is unchanged.
        """
        finite = {
            name: value if not isinstance(value, float) or math.isfinite(value) else None for name, value in row.items()
        }
        line = memoryview(json.dumps(finite).encode() + _LINE_END)
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:]) or 0
        except OSError:
            self._remove_rest()
            raise
        self.size += written

    def close(self) -> None:
        self._file.close()

    def _remove_rest(self) -> None:
        if os.fstat(self._file.fileno()).st_size > self.size:
            os.ftruncate(self._file.fileno(), self.size)


def _end_of_rows(path: pathlib.Path) -> int:
    """Returns the offset in bytes of the end of the last complete row in a file."""
    with open(open_regular(path), "rb") as file:
        size = end = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read()
    while tail and not _is_row(tail):
        # Ignore the final line end, if there is one, to find the end of the previous row.
        kept = tail[:-1].rfind(_LINE_END) + 1
        end -= len(tail) - kept
        tail = tail[:kept]
    return end


def _is_row(tail: bytes) -> bool:
    """Returns whether the last line is a complete row."""
    if not tail.endswith(_LINE_END):
        return False
    try:
        return isinstance(parse_json(tail[:-1].rpartition(_LINE_END)[2]), dict)
    except ValueError:
        return False
