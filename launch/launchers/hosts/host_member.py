"""A host's membership in a run: it sends heartbeats to the first host and carries out the commands in the answers."""

import dataclasses
import queue
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

from courier.python.client import StatusNotOk

from ....errors import CallboardError
from ....runtime.deadlines import Clock, Deadline
from ..run_outcome import Monitor, Outcome, error_text
from ..supervision.other_hosts import OtherHosts
from ..supervision.supervisor import Event
from .cluster_file import Cluster
from .membership import (
    ALL_ENDED,
    LEAVE,
    OTHER_VERSION,
    PROTOCOL,
    RUN,
    SILENT_SECONDS,
    STOP,
    WAIT,
    HostHeartbeat,
    HostOrder,
)

_HEARTBEAT_SECONDS = 0.5
_LATE_SECONDS = 15.0
_REMIND_SECONDS = 60.0
_NO_ANSWER = ("DEADLINE_EXCEEDED", "UNAVAILABLE", "CANCELED")


class HostMember(OtherHosts):
    """A host's membership, used by its supervisor.

    Args:
      cluster: the hosts.
      host: the name of this host.
      settings: the settings that it was started with.
      groups: the restart groups of its nodes.
      events: the queue of its supervisor.
      connect: returns a client of the first host's `HostTable`, or the table itself.
      end_of_run: returns why the run has ended, if the run directory is shared and contains it; otherwise empty.
      clock: the clock; another one in tests.
    """

    def __init__(
        self,
        cluster: Cluster,
        host: str,
        settings: Mapping[str, str],
        groups: Collection[str],
        events: "queue.SimpleQueue[Event]",
        connect: Callable[[], Any],
        end_of_run: Callable[[], str],
        clock: Clock = time.monotonic,
    ):
        self._cluster = cluster
        self._state = HostHeartbeat(host, uuid.uuid4().hex, dict(settings), dict.fromkeys(groups, 0), 0, None, {})
        """The report of the next heartbeat.  Only the supervisor's thread replaces it."""
        self._events = events
        self._connect = connect
        self._first_host = connect()
        self._end_of_run = end_of_run
        self._clock = clock
        self._command = HostOrder(WAIT)
        self._leaves = False
        """Whether this host ends its nodes without waiting for the others."""
        self._patience = Deadline(cluster.patience, clock)
        self._silence = Deadline(SILENT_SECONDS, clock)
        self._is_silent = False
        """Whether the silence of the first host was reported."""
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._send_heartbeats, name="heartbeats", daemon=True)

    def join(self, monitor: Monitor, stopped: threading.Event) -> bool:
        """Waits until this host may take part; returns False if it was stopped first.

        Raises:
          CallboardError: the host was refused, or the first host does not answer.
        """
        patience, reminder = Deadline(self._cluster.patience, self._clock), Deadline(_LATE_SECONDS, self._clock)
        while not stopped.is_set():
            problem = self._try_to_join()
            if not problem:
                return True
            if patience.has_passed:
                raise CallboardError(
                    f"{problem}, for {self._cluster.patience:.0f} s; start the same command on {self._cluster.first}, "
                    f"and see callboard cluster check {self._cluster.path} --host {self._state.host}"
                )
            if reminder.has_passed:
                reminder.restart(_REMIND_SECONDS)
                monitor.notify(f"{problem}; waiting for up to {self._cluster.patience:.0f} s")
            stopped.wait(_HEARTBEAT_SECONDS)
        return False

    def _try_to_join(self) -> str:
        """Sends a heartbeat; returns why this host may not take part yet, or empty."""
        command = self._send()
        if command is None:
            if reason := self._end_of_run():
                raise CallboardError(f"the run has ended: {reason}")
            return f"the host {self._cluster.first} does not answer at {self._cluster.membership_address}"
        if command.kind == LEAVE:
            raise CallboardError(command.reason)
        if command.kind == WAIT:
            return command.reason
        epochs = {group: epoch for group, (epoch, _) in command.epochs.items()}
        self._state = self._state._replace(epochs={**self._state.epochs, **epochs})
        self._obey(command)
        return ""

    def start(self) -> None:
        """Sends heartbeats in the background until `close`; is called once `join` has returned True."""
        self._thread.start()

    def close(self) -> None:
        """Reports that all nodes have ended."""
        self._state = self._state._replace(lowest_order=ALL_ENDED)
        self._closed = True
        self._wake.set()
        self._thread.join()

    def may_stop(self, order: int) -> bool:
        return self._leaves or (self._command.kind == STOP and order <= self._command.order)

    def have_stopped(self, order: int) -> None:
        self._state = self._state._replace(lowest_order=order + 1)
        self._wake.set()

    def must_restart(self, group: str) -> bool:
        return self._epoch_of(group)[0] > self._state.epochs[group]

    def may_start(self, group: str) -> bool:
        return self._epoch_of(group) == (self._state.epochs[group], True)

    def group_ended(self, group: str) -> None:
        # If other hosts are still in the same epoch, this is the host that begins the next one.
        epoch = max(self._epoch_of(group)[0], self._state.epochs[group] + 1)
        self._state = self._state._replace(epochs={**self._state.epochs, group: epoch})
        self._wake.set()

    def seconds_blocked(self, here: dict[str, float]) -> Mapping[str, float]:
        self._state = self._state._replace(blocked=here)
        return self._command.blocked

    def ends(self, outcome: Outcome) -> None:
        if self._state.host == self._cluster.first or (outcome.failed_node is not None and not self._leaves):
            self._state = self._state._replace(outcome=dataclasses.asdict(outcome))
            self._wake.set()
        elif self._command.kind != STOP:
            # Only this host was stopped.
            self._leaves = True

    def heartbeat(self) -> None:
        """Sends a heartbeat and carries out the command; if there is no answer for too long, this host leaves."""
        if self._command.kind in (WAIT, LEAVE):
            return  # It is no longer a member.
        command = self._send()
        if command is not None:
            self._obey(command)
        elif reason := self._end_of_run():
            self._leaves = True
            self._events.put(Event("", "stop", reason))
        elif self._patience.has_passed:
            self._leave(self._cluster.first, f"it did not answer for {self._cluster.patience:.0f} s")
        elif self._silence.has_passed and not self._is_silent:
            self._is_silent = True
            self._notify(f"does not answer; waiting for up to {self._cluster.patience:.0f} s")

    def _send_heartbeats(self) -> None:
        try:
            closed = False
            while not closed:
                self._wake.wait(_HEARTBEAT_SECONDS)
                self._wake.clear()
                closed = self._closed
                self.heartbeat()
        except Exception as error:
            # Without this thread, the supervisor would wait for other hosts forever.
            self._leave(self._state.host, error_text(error))

    def _send(self) -> HostOrder | None:
        """Sends a heartbeat; returns the command in the answer, or None if there is no answer.

        Raises:
          CallboardError: the first host runs another version.
        """
        try:
            answer = self._first_host.heartbeat(PROTOCOL, *self._state)
        except StatusNotOk as error:
            self._first_host = self._connect()
            if error.code.name in _NO_ANSWER:
                return None
            answer = None  # A Python error: there is no such method, or it takes other arguments.
        if not isinstance(answer, (tuple, list)) or len(answer) != 2 or answer[0] != PROTOCOL:
            raise CallboardError(f"the first host, {self._cluster.first}, {OTHER_VERSION}")
        return HostOrder(*answer[1])

    def _obey(self, command: HostOrder) -> None:
        self._patience.restart()
        self._silence.restart()
        if self._is_silent:
            self._is_silent = False
            self._notify("answers again")
        former, self._command = self._command, command
        if command.kind == WAIT:
            self._leave(self._state.host, "another machine has taken its place")
        elif command.kind == LEAVE:
            self._leave(self._state.host, command.reason)
        elif command.kind == STOP and command.outcome is not None and command.outcome != former.outcome:
            self._events.put(Event("", "outcome", Outcome(**command.outcome)))
        elif command.kind == RUN and former.kind == STOP:
            # The first host was restarted while the run ended, and it does not end this time.
            self._leaves = True

    def _leave(self, host: str, problem: str) -> None:
        """Ends this host's part in the run, as a failure."""
        self._leaves = True
        self._events.put(Event("", "failed", (f"host {host}", problem)))

    def _epoch_of(self, group: str) -> tuple[int, bool]:
        """Returns the epoch of a restart group according to the newest command, and whether its nodes may start."""
        epoch, may_start = self._command.epochs.get(group, (0, False))
        return epoch, may_start

    def _notify(self, text: str) -> None:
        self._events.put(Event(f"host {self._cluster.first} ({self._cluster.membership_address})", "message", text))
