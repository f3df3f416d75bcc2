"""Membership of the hosts of a run: one table, owned by the first host, and the messages about it.

The first host is that of the first learner and of the coordinator.  Every host, including the first, sends it a
heartbeat twice a second, and the answer is a command.  A heartbeat carries the complete state of its host: a lost or
repeated one does no harm, and a restarted first host has a complete table after one heartbeat of each host.

| state of a host | begins with | its command |
|---|---|---|
| unknown | the start of the run | |
| running | its first heartbeat | `run`, with the epoch of each restart group |
| ending | the outcome that the first host has decided | `stop`, with the outcome and a stop order |
| ended | a heartbeat after the end of its last node | `stop` |
| silent | 10 s without a heartbeat, unless it has ended; the next heartbeat ends this state | |

Two more commands go to hosts that are not in the table.  `leave`: the host has other settings or another version, or
the run is already ending.  `wait`: the table has another incarnation of the host, which is running or ending; it is
replaced once it is silent or has ended.

**Stop orders.**  Nodes of one stop order are stopped once those of lower ones have ended on all hosts.  The first host
computes the order from the lowest one of which each host still has nodes; hosts that are silent do not count.

**Epochs.**  The nodes of a restart group, such as the learners, are connected to each other over hosts, and end and
start together.  Each such start is an epoch.  A host reports the epoch for which it is ready: that in which its nodes
run, or a later one once they have ended.  The epoch of a group is the highest that any host reports, so a host begins
the next one when a node of the group dies.  One also begins when a host returns, since nodes elsewhere are connected to
those of its former incarnation.  Nodes of earlier epochs are ended; those of the new one start once all hosts that are
running report it.

**Blocked groups.**  The nodes of a group may wait for each other in a common step.  Each host reports for how long all
of its nodes of the group have been in one, and the answer holds the shortest of these times.  Once it exceeds their
timeout, each host treats its nodes as dead.
"""

import dataclasses
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ....runtime.deadlines import Clock, Deadline
from ..supervision.supervisor import Event
from .cluster_file import Cluster
from .guests import GuestList
from .shared_settings import OF_FILE

PROTOCOL = 3
"""Version of the protocol between hosts; increment it with every change of `HostHeartbeat` or `HostOrder`."""
ALL_ENDED = 1000
"""A stop order that is higher than that of any node."""
SILENT_SECONDS = 10.0
OTHER_VERSION = "runs another version of Callboard; install the same version on every host"
_NOT_A_HOST = "this host is not in the cluster file, and has no place among those that joined with the run's token"
_LATE_SECONDS = 15.0
_REMIND_SECONDS = 60.0
_SHOWN_DIFFERENCES = 3
_FIRST_EPOCH = 1

WAIT, RUN, STOP, LEAVE = "wait", "run", "stop", "leave"


class HostHeartbeat(NamedTuple):
    """The state of a host.  Plain Python values only, as in `HostOrder`: both are sent over Courier."""

    host: str
    """Name of the host."""
    incarnation: str
    """Id of this start of the host."""
    settings: dict[str, str]
    """The settings that it was started with."""
    epochs: dict[str, int]
    """For each restart group with nodes on this host, the epoch for which they are ready; 0 before their first."""
    lowest_order: int
    """The lowest stop order of which the host still has nodes; `ALL_ENDED` if all have ended."""
    outcome: dict[str, Any] | None
    """The fields of the `Outcome` that the first host has decided, or of a failure on another host."""
    blocked: dict[str, float]
    """For each restart group with nodes on this host, seconds for which all of them have been in a common step."""


class HostOrder(NamedTuple):
    """The answer of the first host to a heartbeat."""

    kind: str
    """`WAIT`, `RUN`, `STOP` or `LEAVE`."""
    reason: str = ""
    """With `WAIT` and `LEAVE`: why."""
    epochs: Mapping[str, tuple[int, bool]] = {}
    """With `RUN`: the epoch of each restart group of the host, and whether its nodes may start."""
    blocked: Mapping[str, float] = {}
    """With `RUN`: for each restart group of the host, seconds for which all its nodes have been in a common step."""
    order: int = -1
    """With `STOP`: the highest stop order of which nodes may be stopped."""
    outcome: dict[str, Any] | None = None
    """With `STOP`: the fields of the `Outcome` of the run."""


@dataclasses.dataclass
class _Row:
    """A host's row of the table."""

    incarnation: str
    silence: Deadline
    epochs: dict[str, int]
    blocked: dict[str, float] = dataclasses.field(default_factory=dict)
    lowest_order: int = 0
    is_silent: bool = False

    @property
    def has_ended(self) -> bool:
        return self.lowest_order >= ALL_ENDED

    @property
    def is_present(self) -> bool:
        return not self.is_silent and not self.has_ended


class HostTable:
    """The states of all hosts.

    Args:
      cluster: the hosts.
      settings: settings of the first host, which must be the same on the others.
      events: the queue of the first host's supervisor.
      clock: the clock; another one in tests.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Mapping[str, str],
        events: "queue.SimpleQueue[Event]",
        clock: Clock = time.monotonic,
    ):
        self._cluster = cluster
        self._settings = dict(settings)
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._epochs: dict[str, int] = {}
        self._outcome: dict[str, Any] | None = None
        self._refused: set[str] = set()
        self._reminder = Deadline(_LATE_SECONDS, clock)
        self.guests: GuestList | None = None
        """The machines that have joined with the run's token; None if none may."""

    def is_present(self, host: str) -> bool:
        """Returns whether a host sends heartbeats, and has not ended."""
        with self._lock:
            self._look_for_silent_hosts()
            return host in self._rows and self._rows[host].is_present

    def _address_of(self, host: str) -> str:
        """Returns the address of a host; empty if it is neither in the cluster file nor a guest."""
        return self._cluster.hosts.get(host) or (self.guests.address_of(host) if self.guests is not None else "")

    def heartbeat(self, protocol: Any, *fields: Any) -> tuple[int, tuple[Any, ...]]:
        """Takes a heartbeat.

        Args:
          protocol: the `PROTOCOL` of the host; another version may send anything here.
          *fields: the fields of a `HostHeartbeat`.

        Returns:
          `PROTOCOL` and the fields of a `HostOrder`.
        """
        with self._lock:
            if protocol != PROTOCOL or len(fields) != len(HostHeartbeat._fields):
                self._refuse("of another version", "it " + OTHER_VERSION)
                return PROTOCOL, tuple(HostOrder(LEAVE, "this host " + OTHER_VERSION))
            self._look_for_silent_hosts()
            return PROTOCOL, tuple(self._command(HostHeartbeat(*fields)))

    def _command(self, heartbeat: HostHeartbeat) -> HostOrder:
        host = heartbeat.host
        differences = _differences(host, heartbeat.settings, self._cluster.first, self._settings)
        if differences:
            self._refuse(host, differences)
            return HostOrder(LEAVE, differences)
        if not self._address_of(host):
            return HostOrder(LEAVE, _NOT_A_HOST)
        row = self._rows.get(host)
        if row is None or row.incarnation != heartbeat.incarnation:
            if row is not None and row.is_present:
                return HostOrder(WAIT, f"another host has the name {host}")
            if self._outcome is not None:
                return HostOrder(LEAVE, f"the run is ending: {self._outcome['reason']}")
            row = self._admit(heartbeat, returns=row is not None)
        self._update(row, heartbeat)
        if self._outcome is not None:
            order = min((row.lowest_order for row in self._rows.values() if row.is_present), default=ALL_ENDED)
            return HostOrder(STOP, order=order, outcome=self._outcome)
        epochs = {group: (self._epochs[group], self._may_start(group)) for group in row.epochs}
        return HostOrder(RUN, epochs=epochs, blocked={group: self._seconds_blocked(group) for group in row.epochs})

    def _admit(self, heartbeat: HostHeartbeat, returns: bool) -> _Row:
        """Puts a host, or another incarnation of it, into the table."""
        host = heartbeat.host
        if returns:
            self._notify("rejoined the run", host)
        elif host != self._cluster.first:
            self._notify(f"joined the run, from {self._address_of(host)}", host)
        for group, epoch in heartbeat.epochs.items():
            newest = self._epochs.get(group, _FIRST_EPOCH)
            # A host that is already in this epoch has it from a former incarnation of the first host.
            if returns or epoch >= newest:
                newest = 1 + max(newest, epoch)
            self._epochs[group] = newest
        # Nodes that have never started are ready for any epoch.
        epochs = {group: epoch or self._epochs[group] for group, epoch in heartbeat.epochs.items()}
        self._rows[host] = _Row(heartbeat.incarnation, Deadline(SILENT_SECONDS, self._clock), epochs)
        return self._rows[host]

    def _update(self, row: _Row, heartbeat: HostHeartbeat) -> None:
        row.silence.restart()
        if row.is_silent:
            row.is_silent = False
            self._notify("responds again", heartbeat.host)
        # A call that was given up may arrive after later ones.
        row.lowest_order = max(row.lowest_order, heartbeat.lowest_order)
        for group, epoch in heartbeat.epochs.items():
            row.epochs[group] = max(row.epochs[group], epoch)
            self._epochs[group] = max(self._epochs[group], epoch)
        row.blocked = heartbeat.blocked
        outcome = heartbeat.outcome
        if outcome is None:
            return
        if heartbeat.host == self._cluster.first:
            self._outcome = outcome
        elif self._outcome is None or self._outcome["failed_node"] is None:
            node, error = outcome["failed_node"], outcome["error"]
            self._events.put(Event("", "failed", (f"{node} on {heartbeat.host}", error)))

    def _may_start(self, group: str) -> bool:
        epoch = self._epochs[group]
        return all(row.epochs.get(group, epoch) >= epoch for row in self._rows.values() if row.is_present)

    def _seconds_blocked(self, group: str) -> float:
        """Returns for how long all nodes of a restart group have been in a common step; 0 if a host of it is silent."""
        rows = [row for row in self._rows.values() if group in row.epochs]
        return min(row.blocked.get(group, 0.0) if row.is_present else 0.0 for row in rows)

    def _look_for_silent_hosts(self) -> None:
        """Reports hosts that have become silent, and from time to time those that have never joined."""
        for host, row in self._rows.items():
            if row.is_present and row.silence.has_passed:
                row.is_silent = True
                self._notify(f"at {self._address_of(host)}, has not responded for {SILENT_SECONDS:.0f} s", host)
        if self._reminder.has_passed:
            self._reminder.restart(_REMIND_SECONDS)
            for host in sorted(set(self._cluster.needed_hosts) - set(self._rows)):
                self._notify(f"at {self._cluster.hosts[host]}, has not joined yet; is the command running there?", host)

    def _refuse(self, host: str, why: str) -> None:
        if host not in self._refused:
            self._refused.add(host)
            self._notify(f"refused, because {why}", host)

    def _notify(self, text: str, host: str) -> None:
        self._events.put(Event(f"host {host}", "message", text))


def _differences(host: str, settings: Mapping[str, str], first: str, expected: Mapping[str, str]) -> str:
    """Returns the settings in which two hosts differ, in one line; empty if there are none."""
    names = [name for name in {**expected, **settings} if settings.get(name) != expected.get(name)]
    if not names:
        return ""
    shown = [_difference(name, host, settings, first, expected) for name in names[:_SHOWN_DIFFERENCES]]
    more = f", and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    advice = "settings, versions and cluster file"
    if any(name.startswith(OF_FILE) for name in names):
        advice += ", and copies of your modules (callboard cluster run sends them)"
    return f"{', '.join(shown)}{more}; start every host with the same {advice}"


def _difference(name: str, host: str, settings: Mapping[str, str], first: str, expected: Mapping[str, str]) -> str:
    if not name.startswith(OF_FILE):
        return f"{name} is {settings.get(name, 'not set')} on {host} and {expected.get(name, 'not set')} on {first}"
    for one, known in ((host, settings), (first, expected)):
        if name not in known:
            return f"{name} is missing on {one}"
    return f"{name} on {host} differs from that on {first}"
