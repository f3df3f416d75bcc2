"""All loggers of a run, as its settings name them."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ...experiments.checked_run import Run
from ...experiments.settings import settings_by_name
from ...loggers.logger_thread import LoggerThread
from ...loggers.metric_logger import LoggedRun, logger_names, make_logger
from ...loggers.prometheus_logger import PrometheusLogger


class RunLoggers:
    """The loggers of a run, each in a thread of its own.

    Args:
      run: the run.
      notify: receives lines for the user.
    """

    def __init__(self, run: Run, notify: Callable[[str], None]):
        makers: dict[str, Callable[[], Any]] = {
            name: functools.partial(make_logger, name) for name in logger_names(run.output.loggers)
        }
        if run.output.prometheus_port is not None:
            makers["prometheus"] = functools.partial(
                PrometheusLogger, run.output.prometheus_host, run.output.prometheus_port
            )
        logged = LoggedRun(run.directory.path, settings_by_name(run.experiment)) if makers else None
        self._threads = [
            LoggerThread(name, make, logged, notify) for name, make in makers.items() if logged is not None
        ]

    def write(self, row: Mapping[str, Any]) -> None:
        """Passes a row to all loggers; returns at once."""
        for thread in self._threads:
            thread.write(row)

    def close(self) -> None:
        """Ends all loggers, after the rows they have not sent yet."""
        for thread in self._threads:
            thread.close()
