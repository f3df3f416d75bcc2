"""How a run ends, and the monitors that follow it."""

import dataclasses
import errno
import signal
from collections.abc import Callable
from typing import Any, Protocol

from ...errors import CallboardError, ProcessEnded, limits_text, one_line, traceback_text


class Monitor(Protocol):
    """Receives the status and messages of a run."""

    def status(self, status: dict[str, Any]) -> None:
        """Processes the coordinator's newest status."""

    def notify(self, text: str) -> None:
        """Shows a message to the user."""


class OutputClosed(CallboardError):
    """The output is closed: nothing that is printed reaches a reader."""

    def __init__(self, error: OSError):
        super().__init__(
            f"the output was closed ({error.strerror}): keep it open until the run is over, or send it to a file"
        )


class GuardedMonitor:
    """Forwards calls to a monitor until the monitor raises its first exception.

    Args:
      monitor: the monitor.
      on_error: called with that exception.
    """

    def __init__(self, monitor: Monitor, on_error: Callable[[BaseException], Any]):
        self._monitor = monitor
        self._on_error = on_error
        self._failed = False

    def status(self, status: dict[str, Any]) -> None:
        self._call(self._monitor.status, status)

    def notify(self, text: str) -> None:
        self._call(self._monitor.notify, text)

    def _call(self, method: Callable[[Any], None], content: Any) -> None:
        if self._failed:
            return
        try:
            method(content)
        except (Exception, SystemExit) as error:
            self._failed = True
            self._on_error(error)


@dataclasses.dataclass
class Outcome:
    """How a run ended: a limit was reached, it was stopped, or a node failed for good."""

    reason: str = ""
    exit_code: int = 0
    failed_node: str | None = None
    error: str | None = None
    """The failed node's traceback, or one line about what the user can fix."""
    restarted: dict[str, str] = dataclasses.field(default_factory=dict)
    """Why nodes were started again, the last reason of each."""
    score: float | None = None
    """Mean return of the last evaluation; that of the final policy if all `max_steps` were executed."""
    score_std: float | None = None
    """Standard deviation of the returns of that evaluation."""
    best_score: float | None = None
    """Mean return of the best evaluation of the run, whose policy was kept; that of an earlier part counts too."""
    training_return: float | None = None
    """Mean return of the last 100 training episodes."""
    run_directory: str | None = None
    """The run directory: a path, relative to the working directory if it is below it, or a URL."""
    next_commands: tuple[str, ...] = ()
    """Commands that evaluate and continue the run, or calls in Python if commands could not import its environment."""

    def reached_limit(self, reason: str) -> None:
        if not self.ended:
            self.reason = reason

    def interrupted(self, signal_number: int) -> None:
        if not self.ended:
            self.reason = f"stopped by {signal.Signals(signal_number).name}"
            self.exit_code = 128 + signal_number

    def failed(self, node: str, error: str) -> None:
        """Records a failure, even if the run was already ending."""
        if self.failed_node is None:
            self.reason, self.exit_code, self.failed_node, self.error = f"{node} failed", 1, node, error

    def adopt(self, other: "Outcome") -> None:
        """Takes over the outcome decided by another host."""
        if not self.ended or (self.failed_node is None and other.failed_node is not None):
            self.reason, self.exit_code = other.reason, other.exit_code
            self.failed_node, self.error = other.failed_node, other.error

    @property
    def ended_below_best(self) -> bool:
        """Whether the best evaluation of the run was better than the last, or there is no other."""
        return self.best_score is not None and (self.score is None or self.best_score > self.score)

    @property
    def ended(self) -> bool:
        return bool(self.reason)


def error_text(error: BaseException) -> str:
    """Returns the text of an error for the user: one line if that is sufficient, otherwise the traceback."""
    if isinstance(error, CallboardError | ProcessEnded):
        return one_line(error)
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error.strerror}; raise the limit of open files (`ulimit -n`), or start fewer nodes"
    if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        return (
            f"{error.strerror}: there are not enough free ports for the nodes and their connections; end what holds "
            "them, or widen the range in `sysctl net.ipv4.ip_local_port_range`"
        )
    text = traceback_text(error).rstrip()
    limits = limits_text(error)
    return f"{text}\n{limits}" if limits else text
