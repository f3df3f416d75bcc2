"""The files of a run for TensorBoard: metrics as curves and distributions, and the settings of the run."""

import json
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from ..plain_names import as_code, in_markdown
from .metric_names import is_bookkeeping

_DISTRIBUTION = "_distribution"
"""Ends the tag of a distribution: under one tag TensorBoard shows either a curve or distributions, never both."""


class TensorBoardWriter:
    """Writes rows for TensorBoard, and once the settings of the run, which it shows under *HParams* and *Text*.

    TensorBoard stops reading a file at an incomplete record, so a new file is begun after an error.

    Args:
      directory: where TensorBoard looks.
      settings: the settings as JSON or text, by flat name.
    """

    def __init__(self, directory: pathlib.Path, settings: Mapping[str, str] = MappingProxyType({})):
        self._directory = str(directory)
        self._settings = settings
        self._writer: Any = None

    def write(self, row: dict[str, Any], histograms: Mapping[str, Sequence[float]] = MappingProxyType({})) -> None:
        """Writes the values of a row that are worth a curve, and the distributions of other values by name.

        Raises:
          OSError: the directory does not exist.
          OpError: the values were not written, or only some of them.
        """
        try:
            if self._writer is None:
                # TensorFlow would make the directory, and those above it, of a run directory that was renamed.
                os.stat(self._directory)
                self._writer = tf.summary.create_file_writer(self._directory)
                self._write_settings()
            with self._writer.as_default(step=row["environment_steps"]):
                for name, value in row.items():
                    if not is_bookkeeping(name):
                        # TensorFlow rejects Python numbers beyond float32, such as the return of huge rewards.
                        tf.summary.scalar(name, np.float64(value))
                for name, values in histograms.items():
                    tf.summary.histogram(f"{name}{_DISTRIBUTION}", np.asarray(values))
            self._writer.flush()
        except tf.errors.OpError:
            self._writer = None
            raise

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write_settings(self) -> None:
        if not self._settings:
            return
        # Takes a moment that tools which only import this module need not wait.
        from tensorboard.plugins.hparams import api as hparams

        with self._writer.as_default(step=0):
            hparams.hparams({name: _value(text) for name, text in self._settings.items()})
            rows = [f"| {in_markdown(name)} | {as_code(text)} |" for name, text in self._settings.items()]
            tf.summary.text("settings", "\n".join(["| setting | value |", "| --- | --- |", *rows]))


def _value(text: str) -> bool | int | float | str:
    """Returns a setting as the number or truth value that it is, and else as text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    # Protocol buffers hold no larger number.
    fits = isinstance(value, int) and abs(value) <= sys.float_info.max
    return value if fits or isinstance(value, float) else text
