"""Time limits of nodes, their logs and ports, and where metrics go."""

import dataclasses
from typing import Literal

from .quantities import Port, Seconds


@dataclasses.dataclass(frozen=True)
class OutputPart:
    """Time limits of nodes, their logs and ports, and where metrics go.

    Attributes:
      node_timeout: seconds that an environment step, a learner step, a forward pass, or a gap between heartbeats may
        take before the node is treated as dead; a call that compiles may take at least ten minutes.  Increase it for
        slower environments.
      log_level: the least important messages that nodes write to their logs in the run directory: `debug`, `info`,
        `warning` (or `warn`) or `error`.
      listen: the machines whose packets the ports of the run accept: `run` for those of the run, or `all`, see
        the page on security.
      loggers: where metrics also go, besides the run directory: `wandb`, `mlflow`, or `package.module:Class`; a list,
        or separated by commas.  See docs/guides/loggers.md.
      prometheus_port: port at which the coordinator serves the newest metrics for Prometheus; None for no server.
      prometheus_host: address at which it listens; `0.0.0.0` for all interfaces of its machine.
    """

    node_timeout: Seconds = 300.0
    log_level: Literal["debug", "info", "warning", "warn", "error"] = "info"
    listen: Literal["run", "all"] = "run"
    loggers: str | tuple[str, ...] = ()
    prometheus_port: Port | None = None
    prometheus_host: str = "127.0.0.1"
