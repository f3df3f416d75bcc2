"""Metrics for MLflow."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from ..plain_names import plain_names
from .metric_logger import LoggedRun, MetricLogger

_ID = "mlflow"
_EXPERIMENT = "callboard"
_PARAMETERS = 100
"""Parameters that one call may send."""
_METRICS = 1000
"""Metrics, likewise."""
_NAME_LENGTH = 250
"""Length of the longest name."""
_TEXT_LENGTH = 6000
"""Length of the longest value of a parameter."""


class MlflowLogger(MetricLogger):
    """Sends metrics to MLflow, with `environment_steps` as the step.

    `MLFLOW_TRACKING_URI` names the server, and `MLFLOW_EXPERIMENT_NAME` the experiment (`callboard` by default).
    Without a server, metrics are written to `mlruns` in the run directory.  A resumed run continues its MLflow run.
    """

    def __init__(self) -> None:
        self._client: Any = None
        self._run_id = ""

    def start(self, run: LoggedRun) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            # MLflow 3 refuses files otherwise, because it prefers databases.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            uri = (run.directory / "mlruns").absolute().as_uri()
        client = MlflowClient(tracking_uri=uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        known = run.recall(_ID)
        if known is None:
            experiment = client.get_experiment_by_name(name)
            experiment_id = experiment.experiment_id if experiment is not None else client.create_experiment(name)
            known = client.create_run(experiment_id, run_name=run.name).info.run_id
            run.keep(_ID, known)
            texts = zip(_shown(list(run.settings)), run.settings.values(), strict=True)
            parameters = [Param(key, text[:_TEXT_LENGTH]) for key, text in texts]
            for first in range(0, len(parameters), _PARAMETERS):
                client.log_batch(known, params=parameters[first : first + _PARAMETERS])
        else:
            client.update_run(known, status="RUNNING")
        self._client, self._run_id = client, known

    def write(self, row: Mapping[str, Any]) -> None:
        step, milliseconds = int(row["environment_steps"]), int(row.get("time", time.time()) * 1000)
        names = sorted(row.keys() - {"time"})
        pairs = zip(names, _shown(names), strict=True)
        metrics = [Metric(shown, float(row[name]), milliseconds, step) for name, shown in pairs]
        for first in range(0, len(metrics), _METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[first : first + _METRICS])

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self._run_id)


def _shown(names: Sequence[str]) -> list[str]:
    """Returns the names of metrics or parameters as MLflow accepts them."""
    return plain_names(list(map(_without_empty_parts, names)), also="/-. :", longest=_NAME_LENGTH)


def _without_empty_parts(name: str) -> str:
    """Returns the name of a metric without parts that would be none of a path, such as `..`, which MLflow refuses."""
    return "/".join(part if part.strip(".") else part.replace(".", "_") or "_" for part in name.split("/"))
