"""The newest metrics of a run, served for Prometheus."""

import socket
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import CallboardError
from ..plain_names import plain_names
from .metric_logger import LoggedRun, MetricLogger, require_package

_PREFIX = "callboard_"


class PrometheusLogger(MetricLogger):
    """Serves the newest row as gauges, such as `callboard_learner_loss{run="x"}`.

    Args:
      host: address on which the server listens.
      port: its port; 0 for any free one.
    """

    def __init__(self, host: str, port: int):
        self._address = host, port
        self._run = ""
        self._row: Mapping[str, Any] = {}
        self._server: Any = None
        self._thread: Any = None

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self._server.server_port)

    def start(self, run: LoggedRun) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(self)
        self._run = run.name
        host, port = self._address
        self._server, self._thread = start_http_server(port, host, registry)

    def write(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def collect(self) -> Iterator[Any]:
        """Called by the server at every request; yields the metrics."""
        from prometheus_client.core import GaugeMetricFamily

        row = dict(sorted(self._row.items()))
        for name, shown in zip(row, plain_names(list(row)), strict=True):
            gauge = GaugeMetricFamily(f"{_PREFIX}{shown}", name, labels=["run"])
            gauge.add_metric([self._run], float(row[name]))
            yield gauge

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def check_prometheus(host: str, port: int | None) -> None:
    """Refuses an address on which no server can listen on this machine; None as the port is no server.

    Raises:
      CallboardError: in one line.
    """
    if port is None:
        return
    require_package("prometheus_client", "prometheus", "leave prometheus_port out")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        raise CallboardError(
            f"metrics for Prometheus cannot be served at {host}:{port}: {error.strerror or error}; set another "
            "prometheus_port, or prometheus_host to an address of this machine"
        ) from error
