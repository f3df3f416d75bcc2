"""A run in a background thread, and calls to its coordinator and its nodes."""

import contextlib
import math
import signal
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

import cloudpickle

from ...errors import CallboardError, anything_raised, one_line
from ...runtime.deadlines import wait_until
from ..launchers.run_outcome import Monitor, Outcome
from ..nodes.node import Unreachable
from ..nodes.reports.large_contents import GIVE, KEEP, LOST, batches, content_parts
from ..nodes.reports.messages import Command, Reply
from ..processes.stop_signals import ThreadSignals
from ..program_nodes import handle_of
from .prepared_run import PreparedRun

POLL_SECONDS = 0.02
_CALL_SECONDS = 5.0
_JOIN_SECONDS = 0.5
_PAUSE_SECONDS = 10.0
"""Upper bound on the time that a pause waits for timesteps that have begun: an environment may be slow."""
_TRIES = 3


class SessionEnded(CallboardError):
    """The run of a session has ended, so it cannot do what was requested."""


class BackgroundRun:
    """A run that is launched in a thread, which ends with it.

    Args:
      prepared: the run.
      monitor: receives status and messages.
    """

    def __init__(self, prepared: PreparedRun, monitor: Monitor):
        self.outcome: Outcome | None = None
        """How the run ended; None while it exists."""
        self.prepared = prepared
        self._monitor = _StatusKeeper(monitor)
        self._coordinator = handle_of(prepared.program, "coordinator/0")
        self._client: Any = None
        self._error: BaseException | None = None
        self._signals = ThreadSignals()
        self._thread = threading.Thread(target=self._launch, name="session", daemon=True)

    def start(self) -> None:
        """Starts the run, and waits until its nodes do.

        Raises:
          CallboardError: the run has failed.
        """
        self._thread.start()
        wait_until(lambda: self.newest_status or not self.exists, math.inf, POLL_SECONDS)
        self.raise_failure()

    def close(self) -> None:
        """Ends the run as at a limit, and waits for its end; ends it as a signal does if it is only starting."""
        if not self.newest_status:
            # There may be no coordinator for a long time.
            self._signals.send(signal.SIGINT)
        while self.exists:
            with contextlib.suppress(Unreachable, SessionEnded):
                if self.newest_status:
                    self._call_once("request_stop", "its session has ended")
            self._thread.join(_JOIN_SECONDS)

    def join(self) -> None:
        """Waits for the end of the run."""
        self._thread.join()

    @property
    def exists(self) -> bool:
        """Whether the run has begun and has not ended."""
        return self._thread.is_alive() and self.outcome is None

    @property
    def newest_status(self) -> dict[str, Any]:
        """The status that the launcher received last; empty before the first."""
        return self._monitor.newest

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls the coordinator until it answers, also while it restarts.

        Raises:
          SessionEnded: the run ends first.
          CallboardError: the run fails.
        """
        while True:
            try:
                return self._call_once(method, *arguments)
            except Unreachable:
                self._client = None
                time.sleep(POLL_SECONDS)

    def status(self) -> dict[str, Any] | None:
        """Returns the coordinator's current status; None if the run has ended."""
        try:
            return self.call("status")
        except SessionEnded:
            return None

    def pause(self) -> None:
        """Pauses the run where it is, and waits until its actors and learners have finished their steps."""

        def is_at_rest() -> bool:
            status = self.status()
            return status is None or not status["paused"] or status["at_rest"]

        with contextlib.suppress(SessionEnded):
            self.call("run_until", 0, 0)
            wait_until(is_at_rest, _PAUSE_SECONDS, POLL_SECONDS)

    def command(self, nodes: Sequence[str], method: str, *arguments: Any) -> dict[str, Any]:
        """Executes a command in nodes, see `nodes.run_control`, and returns the results by node.

        Raises:
          SessionEnded: the run ends first.
          CallboardError: an argument cannot be pickled, or a node has refused the command, or failed to execute it,
            or restarts again and again while large arguments or results are sent.
        """
        try:
            content = _arguments(*arguments)
        except anything_raised() as error:  # Objects may raise anything.
            raise CallboardError(f"an argument of {method} cannot be pickled ({one_line(error)})") from error
        for _ in range(_TRIES):
            replies = self._replies(nodes, method, content)
            if all(reply.error != LOST for reply in replies.values()):
                break
        for node in nodes:
            if replies[node].error:
                raise CallboardError(f"{node}: {replies[node].error}")
        return {node: cloudpickle.loads(replies[node].result) for node in nodes}

    def _replies(self, nodes: Sequence[str], method: str, content: bytes) -> dict[str, Reply]:
        """Executes a command with arguments of any size, and returns its replies by node, with results of any size."""
        command_id, parts = uuid.uuid4().hex, content_parts(content)
        for batch in batches(len(parts)):
            self._answers(
                [Command(f"{command_id}/{n}", KEEP, _arguments(command_id, n, parts[n])) for n in batch], nodes
            )
        command = Command(command_id, method, b"" if parts else content, len(parts))
        (replies,) = self._answers([command], nodes)
        for node, reply in replies.items():
            results = []
            for batch in batches(reply.parts):
                gives = [Command(f"{node}/{command_id}/{n}", GIVE, _arguments(command_id, n)) for n in batch]
                results += [answer[node] for answer in self._answers(gives, [node])]
            if lost := next((result.error for result in results if result.error), ""):
                replies[node] = reply._replace(error=lost)
            elif results:
                whole = b"".join(cloudpickle.loads(result.result) for result in results)
                replies[node] = reply._replace(result=whole)
        return replies

    def _answers(self, commands: Sequence[Command], nodes: Sequence[str]) -> list[dict[str, Reply]]:
        """Executes commands, each small enough for one message, and returns the replies to each by node."""

        def send(command: Command) -> None:
            self.call("send_command", command.id, command.method, command.arguments, list(nodes), command.parts)

        answers = []
        for command in commands:
            send(command)
        for command in commands:
            while (found := self.call("replies", command.id)) is None or len(found) < len(nodes):
                if found is None:  # A restarted coordinator does not know the command.
                    send(command)
                time.sleep(POLL_SECONDS)
            self.call("remove_command", command.id)
            answers.append({node: Reply(*reply) for node, reply in found.items()})
        return answers

    def raise_failure(self) -> None:
        """Raises the error of a run that has failed."""
        if self._error is not None:
            raise self._error
        if self.outcome is not None and self.outcome.failed_node is not None:
            raise CallboardError(f"{self.outcome.failed_node} failed: {self.outcome.error}")

    def _launch(self) -> None:
        try:
            with self._signals.delivered():
                self.outcome = self.prepared.launch(self._monitor)
        except BaseException as error:
            self._error = error

    def _call_once(self, method: str, *arguments: Any) -> Any:
        if not self.exists:
            self.raise_failure()
            raise SessionEnded(f"the run has ended ({self.outcome.reason if self.outcome else 'not started'})")
        if self._client is None:
            self._client = self._coordinator.client(_CALL_SECONDS)
        return getattr(self._client, method)(*arguments)


def _arguments(*positional: Any) -> bytes:
    return cloudpickle.dumps((positional, {}))


class _StatusKeeper:
    """Keeps the newest status of a run, and forwards everything to a monitor."""

    def __init__(self, monitor: Monitor):
        self.newest: dict[str, Any] = {}
        self._monitor = monitor

    def status(self, status: dict[str, Any]) -> None:
        self.newest = status
        self._monitor.status(status)

    def notify(self, text: str) -> None:
        self._monitor.notify(text)
