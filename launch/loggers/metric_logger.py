"""Where the metrics of a run also go, besides its directory: the interface of loggers, and the ones that there are.

To add a logger, write a class that extends `MetricLogger` and name it by its path, `--loggers package.module:Class`.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib.util
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from ...errors import CallboardError, unknown
from ...files.atomic_files import write_file
from ...files.guarded_files import read_json
from ...messages.install_commands import install_command
from ...settings.named_objects import import_object
from ...settings.setting_types import texts_of

_MODULES = {"wandb": ("wandb_logger:WandbLogger", "wandb"), "mlflow": ("mlflow_logger:MlflowLogger", "mlflow")}
"""Classes of the loggers that have names, with the package that each needs and the extra that installs it."""


@dataclasses.dataclass(frozen=True)
class LoggedRun:
    """Facts about a run that a logger receives.

    Attributes:
      directory: the run directory, or the local copy of one at a URL.
      settings: all settings of the run as text, by flat name.
    """

    directory: pathlib.Path
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.directory.name

    def recall(self, key: str) -> str | None:
        """Returns what `keep` has kept, also before a resume; None if there is nothing."""
        return self._kept().get(key)

    def keep(self, key: str, value: str) -> None:
        """Keeps a text in the run directory, such as the id under which a service knows the run.

        Raises:
          OSError: it could not be written.
        """
        write_file(self._file, json.dumps({**self._kept(), key: value}))

    def _kept(self) -> dict[str, str]:
        try:
            kept = read_json(self._file)
        except (OSError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}

    @property
    def _file(self) -> pathlib.Path:
        return self.directory / "loggers.json"


class MetricLogger(abc.ABC):
    """Receives the metrics of a run.

    It is made, started and called in one background thread of the coordinator's process, so it may take its time.  What
    it raises never ends the run: the user is notified once, and rows are dropped.
    """

    def start(self, run: LoggedRun) -> None:  # noqa: B027
        """Connects to the service; called once, before the first row."""

    @abc.abstractmethod
    def write(self, row: Mapping[str, Any]) -> None:
        """Takes a row of metrics, see docs/metrics.md; its step is `environment_steps`."""

    def close(self) -> None:  # noqa: B027
        """Sends what is left; called at the end of the run, and also if `start` has failed."""


def logger_names(loggers: str | tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names in the setting `loggers`: a list, or separated by commas."""
    return tuple(filter(None, texts_of(loggers)))


def check_loggers(loggers: str | tuple[str, ...]) -> None:
    """Refuses loggers that do not exist or whose package is not installed; starts nothing.

    Raises:
      CallboardError: in one line.
    """
    names = logger_names(loggers)
    for name in names:
        if names.count(name) > 1:
            raise CallboardError(f"the logger {name!r} is listed twice in loggers")
        if ":" in name:
            _own_class(name)
        elif name not in _MODULES:
            raise unknown("logger", name, _MODULES, f"choose from {', '.join(_MODULES)}, or name package.module:Class")
        else:
            require_package(_MODULES[name][1], _MODULES[name][1], f"leave {name} out of loggers")


def require_package(package: str, extra: str, otherwise: str) -> None:
    """Refuses to continue without an optional package.

    Raises:
      CallboardError: the package is not installed; names the extra that installs it.
    """
    if importlib.util.find_spec(package) is None:
        raise CallboardError(f"{package} is not installed: {install_command(f'callboard[{extra}]')}, or {otherwise}")


def make_logger(name: str) -> MetricLogger:
    """Makes a logger by its name, or by `package.module:Class`.

    Raises:
      CallboardError: there is none.
    """
    if ":" in name:
        return _own_class(name)()
    module, _, attribute = _MODULES[name][0].partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), attribute)()


def _own_class(name: str) -> type[MetricLogger]:
    found = import_object("logger", name)
    if not (isinstance(found, type) and issubclass(found, MetricLogger)):
        raise CallboardError(
            f"logger {name!r} must be a class that extends callboard.launch.loggers.metric_logger.MetricLogger"
        )
    return found
