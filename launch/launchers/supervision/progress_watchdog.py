"""Detection of nodes that hang, from their heartbeats.

A suspended process sends no heartbeats at all.  A process that runs but makes no progress sends the same heartbeat
repeatedly.  Both are reported after a few seconds and are overdue after the node's timeout.  A node that waits for
another one is reported but never overdue; the node that it waits for is.  Nodes in the middle of shared work wait for
each other, and are overdue if that holds for all of them, on all hosts.
"""

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...nodes.progress import NodeHeartbeat

_AGAIN = 0.25
"""Part of the limit after which a node is named that was named for the same before."""
_SILENT_SECONDS = 6.0
_WORK_SECONDS = 8.0
_SLOW_SECONDS = 30.0
_WAIT_SECONDS = 60.0
_WAIT_REMIND_SECONDS = 600.0
_REMIND_SECONDS = 60.0
_SLOW_TIMEOUT_SECONDS = 600.0
"""Minimum timeout of work that may take minutes, such as compilation."""
_SUSPENDED_SECONDS = 5.0
"""If the watchdog was not called for this long, the supervisor was suspended, and perhaps the nodes with it."""
_LOOK_SECONDS = 0.5
_NAMES = 3

# While the run ends:
_STOP_SAID_SECONDS = 3.0
_STOP_REMIND_SECONDS = 10.0
_STOP_SILENT_SECONDS = 15.0
_STOP_PATIENCE_SECONDS = 2.0
"""A node that hangs may still react to the stop within this time."""


class Overdue(NamedTuple):
    """A node that is to be treated as dead."""

    node: str
    why: str


class _Stall(NamedTuple):
    """The activity of a node that makes no progress."""

    text: str
    seconds: float
    named_after: float
    """Time without progress, in seconds, after which the user is informed."""
    overdue_after: float
    waits: bool = False
    """Whether the node waits for another node."""


@dataclasses.dataclass
class _Watched:
    """State of a node's current incarnation; times are readings of the clock."""

    timeout: float
    group: str
    heard: float
    """When its last heartbeat arrived or, before the first one, when it was started."""
    progressed: float
    heartbeat: NodeHeartbeat | None = None
    next_line: float = 0.0
    """Seconds without progress after which the next line is printed."""
    named: bool = False
    said: set[str] = dataclasses.field(default_factory=set)
    """The last report of it; the next comes only when a part of the limit has passed."""
    next_wait_line: float = -math.inf
    """The time before which its waiting is not reported again, since waiting for others may be normal for it."""


class ProgressWatchdog:
    """Watches the heartbeats of nodes.

    Args:
      notify: takes a line to show to the user.
      clock: returns monotonic time in seconds.
      blocked_everywhere: takes the seconds for which all nodes of each restart group have been in shared work here, by
        group, and returns the same for all hosts.
    """

    def __init__(
        self,
        notify: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        blocked_everywhere: Callable[[dict[str, float]], Mapping[str, float]] = lambda seconds: seconds,
    ):
        self._notify = notify
        self._clock = clock
        self._blocked_everywhere = blocked_everywhere
        self._blocked: Mapping[str, float] = {}
        """For how long the nodes of each restart group have been blocked on all hosts, in seconds."""
        self._nodes: dict[str, _Watched] = {}
        self._any_heard = False
        self._looked = clock()
        self._next_stop_line = _STOP_SAID_SECONDS

    def began(self, node: str, timeout: float, group: str = "") -> None:
        """Registers a node that was started.

        Args:
          node: its name.
          timeout: time that work in which it does not wait for others may take, in seconds.
          group: its restart group.
        """
        now = self._clock()
        self._nodes[node] = _Watched(timeout, group, heard=now, progressed=now)

    def heard(self, node: str, heartbeat: NodeHeartbeat) -> None:
        """Processes a heartbeat."""
        watched = self._nodes.get(node)
        if watched is None:
            return
        now, before = self._clock(), watched.heartbeat
        self._any_heard = True
        # A process that was suspended and continues has not been stuck in its current activity.
        if heartbeat != before or now - watched.heard > _SILENT_SECONDS:
            self._progresses(node, watched, now)
        watched.heard, watched.heartbeat = now, heartbeat

    def ended(self, node: str) -> None:
        """Removes a node that has ended."""
        self._nodes.pop(node, None)

    def look(self) -> list[Overdue]:
        """Reports the nodes that hang and returns those that are overdue; must be called at least every second."""
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return []
        self._forgive_suspension(now)
        groups = {watched.group for watched in self._nodes.values()} - {""}
        self._blocked = self._blocked_everywhere({group: self._seconds_blocked(group, now) for group in groups})
        overdue = []
        lines: dict[str, list[str]] = collections.defaultdict(list)
        for name, watched in self._nodes.items():
            stall = self._stall(watched, now)
            if stall.seconds > stall.overdue_after:
                overdue.append(Overdue(name, f"{stall.text} for {stall.seconds:.0f} s"))
            elif stall.seconds > max(self._named_after(watched, stall), watched.next_line):
                watched.said.add(stall.text)
                watched.next_line = stall.seconds + _REMIND_SECONDS
                if stall.waits and now < watched.next_wait_line:
                    continue
                if stall.waits:
                    watched.next_wait_line = now + _WAIT_REMIND_SECONDS
                watched.named = not stall.waits
                limit = "" if math.isinf(stall.overdue_after) else f", at most {stall.overdue_after:.0f} s"
                lines[f"{stall.text} for {stall.seconds:.0f} s{limit}"].append(name)
        for text, names in lines.items():
            self._notify(f"{_enumerate(names)}: {text}")
        return overdue

    def look_at_stop(self, nodes: Mapping[str, bool], seconds: float, grace: float) -> list[Overdue]:
        """Reports periodically which nodes the end of the run waits for; returns those that need not be waited for.

        Args:
          nodes: the nodes that received the stop and have not ended; True for those that save data on exit.
          seconds: time since they received the stop.
          grace: time that they have, in seconds.
        """
        now = self._clock()
        self._forgive_suspension(now)
        overdue = []
        waiting: dict[str, list[str]] = collections.defaultdict(list)
        for name, keeps in nodes.items():
            watched = self._nodes.get(name)
            if watched is None:
                continue
            stall = self._stall(watched, now)
            silent = watched.heartbeat is not None and now - watched.heard > _STOP_SILENT_SECONDS
            kind = watched.heartbeat.kind if watched.heartbeat else "slow"
            useless = not keeps and kind == "work" and stall.seconds > _WORK_SECONDS
            if seconds > _STOP_PATIENCE_SECONDS and (silent or useless):
                overdue.append(Overdue(name, f"{stall.text} for {stall.seconds:.0f} s"))
            else:
                waiting[stall.text].append(name)
        if seconds < _STOP_SAID_SECONDS:
            self._next_stop_line = _STOP_SAID_SECONDS
        elif seconds >= self._next_stop_line:
            self._next_stop_line = seconds + _STOP_REMIND_SECONDS
            limit = f"at most {grace:.0f} s" if seconds < grace else "while it makes progress"
            for text, names in waiting.items():
                self._notify(f"waiting for {_enumerate(names)}, {text} ({seconds:.0f} s, {limit})")
        return overdue

    def works_slowly(self, node: str) -> bool:
        """Returns whether a node makes progress in work that may take minutes, such as writing to a slow disk."""
        watched = self._nodes.get(node)
        if watched is None or watched.heartbeat is None or watched.heartbeat.kind != "slow":
            return False
        stall = self._stall(watched, self._clock())
        return stall.seconds < stall.overdue_after

    def _stall(self, watched: _Watched, now: float) -> _Stall:
        """Returns the activity of a node since its last progress."""
        slow = max(watched.timeout, _SLOW_TIMEOUT_SECONDS)
        silent = now - watched.heard
        if watched.heartbeat is None:
            # No heartbeat arrives before the forkserver's imports are done.
            return _Stall("not started", silent, _WORK_SECONDS if self._any_heard else _SLOW_SECONDS, slow)
        if silent > _SILENT_SECONDS:
            return _Stall("no heartbeat", silent, _SILENT_SECONDS, watched.timeout)
        _, activity, kind, _ = watched.heartbeat
        seconds = now - watched.progressed
        if kind == "work":
            return _Stall(activity, seconds, _WORK_SECONDS, watched.timeout)
        if kind == "slow":
            return _Stall(activity, seconds, _SLOW_SECONDS, slow)
        blocked = kind == "shared" and min(seconds, self._blocked.get(watched.group, 0.0)) > slow
        return _Stall(activity, seconds, _WAIT_SECONDS, slow if blocked else math.inf, waits=True)

    def _named_after(self, watched: _Watched, stall: _Stall) -> float:
        if stall.text not in watched.said or math.isinf(stall.overdue_after):
            return stall.named_after
        return max(stall.named_after, _AGAIN * stall.overdue_after)

    def _seconds_blocked(self, group: str, now: float) -> float:
        """Returns for how long all nodes of a restart group have been in shared work here without progress."""
        members = [watched for watched in self._nodes.values() if watched.group == group]
        if all(member.heartbeat is not None and member.heartbeat.kind == "shared" for member in members):
            return min(now - member.progressed for member in members)
        return 0.0

    def _progresses(self, node: str, watched: _Watched, now: float) -> None:
        if watched.named:
            self._notify(f"{node}: makes progress again, after {now - min(watched.progressed, watched.heard):.0f} s")
        watched.progressed, watched.named, watched.next_line = now, False, 0.0

    def _forgive_suspension(self, now: float) -> None:
        """Excludes the time during which the supervisor itself was suspended."""
        suspended = now - self._looked
        self._looked = now
        if suspended < _SUSPENDED_SECONDS:
            return
        for watched in self._nodes.values():
            watched.heard = min(now, watched.heard + suspended)
            watched.progressed = min(now, watched.progressed + suspended)


def _enumerate(names: Sequence[str]) -> str:
    if len(names) <= _NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMES])} and {len(names) - _NAMES} more"
