"""Metrics on disk: `metrics.jsonl`, one row a line, and the same for TensorBoard."""

import json
import math
from typing import Any

import tensorflow as tf

from .run_directory import RunDirectory


class MetricsWriter:
    """Appends rows of metrics to the run directory.  The step of a row is its `environment_steps`."""

    def __init__(self, run_directory: RunDirectory):
        self._file = run_directory.metrics.open("a", encoding="utf-8")
        self._tensorboard = tf.summary.create_file_writer(str(run_directory.tensorboard))

    def write(self, row: dict[str, Any]) -> None:
        finite = {
            name: value if not isinstance(value, float) or math.isfinite(value) else None for name, value in row.items()
        }
        self._file.write(json.dumps(finite) + "\n")
        self._file.flush()
        with self._tensorboard.as_default(step=row["environment_steps"]):
            for name, value in row.items():
                if name not in ("time", "environment_steps"):
                    tf.summary.scalar(name, value)
        self._tensorboard.flush()

    def close(self) -> None:
        self._file.close()
        self._tensorboard.close()
