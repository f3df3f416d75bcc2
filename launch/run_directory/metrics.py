"""Metrics on disk: `metrics.jsonl`, one row a line, and the same for TensorBoard.

Both stay small however long a run takes.  While `metrics.jsonl` has less than 8 MB every row is written.  After that
rows of one kind are written at most every 4 s, from 16 MB on every 8 s, and so on: with 2.8 kB a row, it has some 40 MB
after a day, 70 MB after a month and 100 MB after a year, and TensorBoard's files a bit more than twice as much.
"""

import json
import math
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .file_errors import file_error
from .layout import RunDirectory

_STEP_BYTES = 8 * 2**20
_ROW_SECONDS = 2.0
_LINE_END = b"\n"
_TAIL_BYTES = 2**20


class MetricsWriter:
    """Appends rows of metrics to the run directory.  The step of a row is its `environment_steps`.

    Where the disk does not take them, rows are left out until it does.

    Args:
      run_directory: of the run.
      say: is given a line when the disk does not take a row, and when it does again.
      clock: seconds.
    """

    def __init__(
        self,
        run_directory: RunDirectory,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._rows = RowFile(run_directory.metrics)
        self._tensorboard = TensorBoardWriter(run_directory.tensorboard)
        self._say = say
        self._clock = clock
        self._failing = False
        self._last: dict[str, float] = {}

    def write(self, row: dict[str, Any], kind: str = "", always: bool = False) -> None:
        """Writes a row, unless the last one of its kind was written too short a time ago.

        Args:
          row: values by name.
          kind: rows of different kinds are counted separately.
          always: whether to write it in any case.
        """
        now = self._clock()
        if not always and kind in self._last and now - self._last[kind] < row_interval(self._rows.size):
            return
        self._last[kind] = now
        error = None
        for write in (self._rows.write, self._tensorboard.write):
            try:
                write(row)
            except (OSError, tf.errors.OpError) as caught:
                error = error or caught
        if error is not None and not self._failing:
            self._say(f"metrics could not be written: {file_error(error)}; the run continues without them")
        if error is None and self._failing:
            self._say("metrics are written again")
        self._failing = error is not None

    def close(self) -> None:
        self._rows.close()
        self._tensorboard.close()


def row_interval(size: int) -> float:
    """Seconds between rows of one kind in a file of `size` bytes."""
    steps = size // _STEP_BYTES
    return _ROW_SECONDS * 2.0**steps if steps else 0.0


class RowFile:
    """A file of JSON rows that is appended to.

    What a process left of a row that it did not finish is removed; so is what a full disk took of one.

    Args:
      path: of the file.
    """

    def __init__(self, path: pathlib.Path):
        self._file = path.open("ab", buffering=0)
        self.size = _end_of_rows(path)
        """Bytes."""
        self._remove_rest()

    def write(self, row: dict[str, Any]) -> None:
        """Appends a row.

        Raises:
          OSError: it was not written; the file is as it was.
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


class TensorBoardWriter:
    """Writes rows for TensorBoard.

    TensorBoard reads no further than to a record that is not whole: after an error, a new file is begun.
    """

    def __init__(self, directory: pathlib.Path):
        self._directory = str(directory)
        self._writer: Any = None

    def write(self, row: dict[str, Any]) -> None:
        """Writes the values of a row.

        Raises:
          OpError: of TensorFlow; they were not written, or in part.
        """
        try:
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(self._directory)
            with self._writer.as_default(step=row["environment_steps"]):
                for name, value in row.items():
                    if name not in ("time", "environment_steps"):
                        # A Python number beyond float32, such as the return of huge rewards, would be refused.
                        tf.summary.scalar(name, np.float64(value))
            self._writer.flush()
        except tf.errors.OpError:
            self._writer = None
            raise

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _end_of_rows(path: pathlib.Path) -> int:
    """Where the last row of a file that is whole ends, in bytes."""
    with path.open("rb") as file:
        size = end = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read()
    while tail and not _is_row(tail):
        # Without the line end, if there is one: back to the end of the row before.
        kept = tail[:-1].rfind(_LINE_END) + 1
        end -= len(tail) - kept
        tail = tail[:kept]
    return end


def _is_row(tail: bytes) -> bool:
    """Whether the last line is a whole row."""
    if not tail.endswith(_LINE_END):
        return False
    try:
        return isinstance(json.loads(tail[:-1].rpartition(_LINE_END)[2]), dict)
    except ValueError:
        return False
