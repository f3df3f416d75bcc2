"""How a run ends, and who is told what happens on the way."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol


class Monitor(Protocol):
    """Is told what happens in a run."""

    def status(self, status: dict[str, Any]) -> None:
        """The coordinator's newest status."""

    def say(self, text: str) -> None:
        """Something that a user should read."""


@dataclasses.dataclass
class Outcome:
    """How a run has ended: a limit was reached, it was asked to stop, or a node failed for good."""

    reason: str = ""
    exit_code: int = 0
    failed_node: str | None = None
    error: str | None = None
    """The failed node's traceback, or one line that says what a user can mend."""

    def reached_limit(self, reason: str) -> None:
        if not self.ended:
            self.reason = reason

    def interrupted(self, signal_number: int) -> None:
        if not self.ended:
            self.reason = f"stopped by {signal.Signals(signal_number).name}"
            self.exit_code = 128 + signal_number

    def failed(self, node: str, error: str) -> None:
        """A failure is told even where the run was already about to end."""
        if self.failed_node is None:
            self.reason, self.exit_code, self.failed_node, self.error = f"{node} failed", 1, node, error

    def adopt(self, other: "Outcome") -> None:
        """Ends as the run has ended elsewhere."""
        if not self.ended or (self.failed_node is None and other.failed_node is not None):
            self.reason, self.exit_code = other.reason, other.exit_code
            self.failed_node, self.error = other.failed_node, other.error

    @property
    def ended(self) -> bool:
        return bool(self.reason)


@contextlib.contextmanager
def stop_signals(on_signal: Callable[[int], Any]) -> Iterator[None]:
    """Calls `on_signal` for Ctrl-C and SIGTERM while it lasts.  Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda number, frame: on_signal(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
