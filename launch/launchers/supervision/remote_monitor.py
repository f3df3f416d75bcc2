"""A monitor in another process: the coordinator's process reports to it over Courier."""

import logging
from collections.abc import Callable
from typing import Any

import cloudpickle
import courier

from ....errors import CallboardError
from ...nodes.node import Unreachable
from ...processes.listen_filter import PortGuard
from ..run_outcome import GuardedMonitor, Monitor, Outcome, error_text

_CALL_SECONDS = 10.0


class MonitorServer:
    """Serves a monitor, and keeps the outcome that is reported at the end of the run.

    Once the monitor has raised an exception, it is not called again: the text of the error is what its calls return.

    Args:
      monitor: receives status and messages.
    """

    def __init__(self, monitor: Monitor):
        self._error = ""
        self._monitor = GuardedMonitor(monitor, self._keep_error)
        self._server = courier.Server()
        for method in (self.status, self.notify, self.complete):
            self._server.Bind(method.__name__, method)
        self._server.Start()
        PortGuard().close(self._server.port)
        self.outcome = Outcome()
        """How the run ended; not ended if the coordinator has not reported it."""

    @property
    def address(self) -> str:
        """The `host:port` for a `MonitorClient` on this machine."""
        return f"localhost:{self._server.port}"

    def status(self, pickled: bytes) -> str:
        self._monitor.status(cloudpickle.loads(pickled))
        return self._error

    def notify(self, text: str) -> str:
        self._monitor.notify(text)
        return self._error

    def complete(self, pickled: bytes) -> None:
        self.outcome = cloudpickle.loads(pickled)

    def close(self) -> None:
        self._server.Stop()
        self._server.Join()

    def _keep_error(self, error: BaseException) -> None:
        self._error = error_text(error)


class MonitorClient:
    """Forwards to the monitor of a `MonitorServer`; what cannot be delivered is dropped.

    The methods raise `CallboardError` with the text of the monitor's own error.

    Args:
      address: the server's address.
      is_there: returns whether the server's process is running; if not, calls do not wait for an answer.
    """

    def __init__(self, address: str, is_there: Callable[[], bool] = lambda: True):
        self._is_there = is_there
        self._client = courier.Client(address, call_timeout=_CALL_SECONDS)

    def status(self, status: dict[str, Any]) -> None:
        self._call("status", cloudpickle.dumps(status))

    def notify(self, text: str) -> None:
        self._call("notify", text)

    def complete(self, outcome: Outcome) -> None:
        """Reports how the run has ended."""
        self._call("complete", cloudpickle.dumps(outcome))

    def _call(self, method: str, content: Any) -> None:
        if not self._is_there():
            return
        try:
            error = getattr(self._client, method)(content)
        except Unreachable as unreachable:
            logging.warning("the launcher does not answer: %s", unreachable)
            return
        if error:
            raise CallboardError(error)
