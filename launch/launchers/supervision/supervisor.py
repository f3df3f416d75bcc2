"""The supervisor: starts nodes, restarts those that die, and ends them in order."""

import collections
import contextlib
import math
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ....messages.caller_words import argument
from ....runtime.deadlines import Deadline
from ...nodes.node import NodeRules
from ...nodes.progress import HEARTBEAT
from ...processes.stop_signals import stop_signals
from ..run_outcome import GuardedMonitor, Monitor, Outcome, error_text
from .other_hosts import OtherHosts
from .progress_watchdog import ProgressWatchdog

_KILL_SECONDS = 2.0
_OTHERS_SECONDS = 10.0
"""Time after which the user is informed that the end of the run waits for other hosts."""
_FAILED_SECONDS = 6.0
"""Time in which all nodes must end after an error of the supervisor itself."""
SIGNAL_SECONDS = 1.0
"""Signals that arrive within this time count as one; `timeout`, for example, sends two at once."""


class Exit(NamedTuple):
    """How a node ended."""

    clean: bool
    description: str
    """A short text, such as `killed by SIGKILL` or `exit code 1`."""
    error: str | None = None
    """The traceback, or the one line of a `CallboardError`."""
    final: bool = False
    """Whether a restart would be useless (a `CallboardError`)."""
    gone: bool = False
    """Whether it ended with its machine, which may leave: that is no fault of the node."""
    place: str = ""
    """Where an exception was raised that is no fault of a connection or of resources; empty for other ends."""


class Event(NamedTuple):
    """An event that a worker or a signal handler puts into the supervisor's queue."""

    node: str
    kind: str
    """Kind of event.

    From a node: `exit` (an `Exit`), `stop` (the reason why the run is over), `message` (a line of text), `status`
    (a dictionary), `heartbeat` (a `progress.Heartbeat`), `port`, `signal` (the number of a signal that reached it).

    From elsewhere: `hosts` (the addresses whose packets nodes accept from now on), `signal` (its number),
    `outcome` (how the run ends, an `Outcome`), `failed` (a node of another host and its error), `line` (printed as it
    is), `monitor` (an exception raised by the monitor).
    """
    content: Any


class Worker(Protocol):
    """One incarnation of a node, in a thread or in a process.  It puts events into the supervisor's queue."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Requests the node to stop."""

    def kill(self) -> None:
        """Ends the node at once; as after every end, an `exit` event follows."""


@runtime_checkable
class GuardedWorker(Protocol):
    """A worker whose node can be told that other machines have joined the run."""

    def allow(self, hosts: Sequence[str]) -> None:
        """Makes the node accept packets from these machines, in place of those of its rules."""


class Supervised:
    """A node over all its incarnations.

    Args:
      name: name of the node.
      rules: how the node is treated.
      make_worker: makes the worker of its next incarnation.
      can_be_killed: whether a worker's `kill` also ends a node that hangs.
    """

    def __init__(self, name: str, rules: NodeRules, make_worker: Callable[[], Worker], can_be_killed: bool = True):
        self.name = name
        self.rules = rules
        self.can_be_killed = can_be_killed
        self.has_hung = False
        """Whether it is being killed because it hangs."""
        self.hang = ""
        """Its activity when it was last killed because it hung."""
        self.worker: Worker | None = None
        self.deaths: collections.deque[float] = collections.deque()
        self.achieved = 0
        """The work that the incarnation has done, see `Progress.achieved`."""
        self._ever_achieved = False
        self._last_error = ("", 0)
        self._make_worker = make_worker

    @property
    def end_by_force(self) -> str:
        """The end of a node that hangs, for messages."""
        return "killed" if self.can_be_killed else "left behind in its thread"

    def start(self) -> None:
        worker = self._make_worker()
        worker.start()
        self.worker = worker

    def is_deterministic(self, how: Exit) -> bool:
        """Returns whether an incarnation has ended by an error of the user's code, which a restart would repeat.

        That is an exception before the node has achieved anything, or one that was raised after as much as the last
        time, and at the same place.
        """
        self._ever_achieved |= self.achieved > 0
        before, self._last_error = self._last_error, (how.place, self.achieved)
        self.achieved = 0
        return bool(how.place) and (not self._ever_achieved or before == self._last_error)

    def may_restart(self, now: float) -> bool:
        """Records a death at the time `now`, in seconds; returns whether the restart limit still allows a restart."""
        self.deaths.append(now)
        window = self.rules.restart_window
        if self.has_hung:
            # Detecting each hang takes up to the timeout.
            window += self.rules.restarts * self.rules.timeout
            self.has_hung = False
        while self.deaths and now - self.deaths[0] > window:
            self.deaths.popleft()
        return len(self.deaths) <= self.rules.restarts


class Supervisor:
    """Runs nodes until the end of a run.

    Args:
      nodes: in the order in which they start.
      events: the queue that the workers write to.
      monitor: receives status and messages.
      others: the supervisors of other hosts.
      clock: returns monotonic time in seconds.
    """

    def __init__(
        self,
        nodes: Sequence[Supervised],
        events: "queue.SimpleQueue[Event]",
        monitor: Monitor,
        others: OtherHosts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._nodes = {node.name: node for node in nodes}
        self._events = events
        self._monitor = GuardedMonitor(monitor, lambda error: events.put(Event("", "monitor", error)))
        self._others = others or OtherHosts()
        self._clock = clock
        self._watchdog = ProgressWatchdog(self._monitor.notify, clock, self._others.seconds_blocked)
        self._outcome = Outcome()
        self._signals = 0
        """How often the run was to end at once.  The first time, it ends in order; each further time hurries it."""
        self._last_signal = -math.inf
        self._own_signal_is_due = False
        """Whether a node reported a signal that ended the run and that may have been sent to this process too."""
        self._ending_with_group: set[str] = set()
        """Nodes that were killed because another node of their restart group died."""
        self._waiting_groups: set[str] = set()
        """Restart groups of which no node runs on this host, and that start once they have ended on every host."""
        self._ending = False
        self._latest_end = math.inf
        """The time at which nodes that still run are killed, regardless of their grace period."""

    def run(self) -> Outcome:
        """Runs all nodes until the run is over, then ends them; an error of the supervisor is a failed run."""
        with stop_signals(lambda number: self._events.put(Event("", "signal", number))):
            for part in (self._run_until_over, self._stop_in_order, self._kill_all):
                try:
                    part()
                except BaseException as error:
                    # Whatever the error is, no node may be left running.
                    self._fail_itself(error)
        return self._outcome

    def _run_until_over(self) -> None:
        groups = {node.rules.restart_group for node in self._nodes.values()} - {""}
        self._waiting_groups = {group for group in groups if not self._others.may_start(group)}
        for node in self._nodes.values():
            if node.rules.restart_group not in self._waiting_groups:
                self._start(node)
        while not self._outcome.ended:
            self._handle(next_event(self._events, 0.5))
            for group in groups:
                if self._others.must_restart(group):
                    self._restart_group(group)
            self._start_waiting_groups()
            self._end_hanging()

    def _handle(self, event: Event | None) -> None:
        if event is None:
            return
        if event.kind == "signal":
            self._handle_signal(event.content, from_node=bool(event.node))
        elif event.kind == "stop":
            self._outcome.reached_limit(event.content)
        elif event.kind == "status":
            self._monitor.status(event.content)
        elif event.kind == HEARTBEAT:
            self._watchdog.heard(event.node, event.content)
            self._nodes[event.node].achieved = event.content.achieved
        elif event.kind == "message":
            self._monitor.notify(f"{event.node}: {event.content}")
        elif event.kind == "hosts":
            for node in self._nodes.values():
                if isinstance(node.worker, GuardedWorker):
                    node.worker.allow(event.content)
        elif event.kind == "line":
            self._monitor.notify(event.content)
        elif event.kind == "exit":
            self._handle_exit(self._nodes[event.node], event.content)
        elif event.kind == "outcome":
            self._outcome.adopt(event.content)
        elif event.kind == "failed":
            self._fail(*event.content)
        elif event.kind == "monitor" and not self._outcome.ended:
            self._fail_itself(event.content)

    def _handle_signal(self, number: int, from_node: bool) -> None:
        # If all processes are signaled at once, nodes may report the signal before or long after the launcher receives
        # it.  It counts as one signal, and does not shorten the end of the run.
        now = self._clock()
        if from_node:
            if not self._own_signal_is_due and not self._outcome.ended:
                self._own_signal_is_due = True
                self._signals += 1
        elif now - self._last_signal > SIGNAL_SECONDS:
            self._last_signal = now
            self._signals += not self._own_signal_is_due
            self._own_signal_is_due = False
            if self._ending and self._signals == 1:
                self._monitor.notify("the run is ending; a second signal kills what has not ended")
        self._outcome.interrupted(number)

    def _handle_exit(self, node: Supervised, how: Exit) -> None:
        node.worker = None
        self._watchdog.ended(node.name)
        if how.final:
            self._fail(node.name, how.error or how.description)
        elif self._outcome.ended or self._ending:
            if not how.clean:
                self._monitor.notify(f"{node.name}: {how.description} while the run was ending")
                # After a signal, the exit code already shows that the run did not end as planned.
                if node.rules.keeps and (how.error or not self._outcome.exit_code):
                    self._fail(node.name, how.error or f"{how.description} before it had kept what it has to keep")
        elif node.name in self._ending_with_group:
            self._ending_with_group.discard(node.name)
            self._start_group(node.rules.restart_group)
        elif how.gone:
            self._monitor.notify(f"{node.name}: {how.description}; it starts again as soon as there is room")
            self._start(node)
        elif node.is_deterministic(how):
            self._fail(node.name, how.error or how.description)
        elif self._may_restart(node):
            self._outcome.restarted[node.name] = how.error or how.description
            self._monitor.notify(
                f"{node.name}: {how.description}; started again ({len(node.deaths)} of {node.rules.restarts} "
                f"within {node.rules.restart_window:.0f} s)"
            )
            if node.rules.restart_group:
                self._restart_group(node.rules.restart_group)
            else:
                self._start(node)
        else:
            self._fail(node.name, how.error or f"{node.hang or how.description}, {len(node.deaths)} times in a row")

    def _may_restart(self, node: Supervised) -> bool:
        if not node.has_hung:
            node.hang = ""
        return node.may_restart(self._clock())

    def _start(self, node: Supervised) -> None:
        """Starts a node; if that is impossible, the run has failed."""
        if self._outcome.ended:
            return
        try:
            self._watchdog.began(node.name, node.rules.timeout, node.rules.restart_group)
            node.start()
        except Exception as error:
            self._fail(node.name, error_text(error))

    def _end_hanging(self) -> None:
        """Kills nodes that have made no progress for too long."""
        if not self._events.empty():
            return  # Their heartbeats may be among these events.
        for name, why in self._watchdog.look():
            node = self._nodes[name]
            if not node.can_be_killed:
                instead = argument("launcher", "processes")
                self._fail(name, f"{why}, and a node in a thread cannot be killed; use {instead}")
            elif node.worker is not None and not node.has_hung and name not in self._ending_with_group:
                node.has_hung = True
                node.hang = _hang_text(why)
                self._monitor.notify(f"{name}: {why}, and is killed")
                node.worker.kill()

    def _fail(self, node: str, error: str) -> None:
        self._outcome.failed(node, error)
        if self._ending:
            self._others.ends(self._outcome)

    def _fail_itself(self, error: BaseException) -> None:
        """Ends the run because of an error that was not caused by a node."""
        self._outcome.failed("launcher", error_text(error))
        self._latest_end = min(self._latest_end, self._clock() + _FAILED_SECONDS)

    def _restart_group(self, group: str) -> None:
        """Kills the running nodes of a restart group, and starts all of its nodes once they have ended."""
        for node in self._group(group):
            if node.worker is not None and node.name not in self._ending_with_group:
                self._ending_with_group.add(node.name)
                node.worker.kill()
        self._start_group(group)

    def _group(self, group: str) -> list[Supervised]:
        return [node for node in self._nodes.values() if node.rules.restart_group == group]

    def _start_group(self, group: str) -> None:
        """Starts the nodes of a restart group once all of them have ended, including those on other hosts."""
        if all(member.worker is None for member in self._group(group)):
            self._others.group_ended(group)
            self._waiting_groups.add(group)
            self._start_waiting_groups()

    def _start_waiting_groups(self) -> None:
        for group in list(self._waiting_groups):
            if self._others.may_start(group):
                self._waiting_groups.discard(group)
                for member in self._group(group):
                    self._start(member)

    def _stop_in_order(self) -> None:
        self._ending = True
        self._others.ends(self._outcome)
        for order in range(1 + max((node.rules.stop_order for node in self._nodes.values()), default=-1)):
            signals = self._signals_before_killing
            begun = notified = self._clock()
            while not self._others.may_stop(order) and self._signals <= signals and self._clock() < self._latest_end:
                self._handle(next_event(self._events, 0.1))
                if self._clock() - notified > _OTHERS_SECONDS:
                    notified = self._clock()
                    self._monitor.notify(f"waiting for other hosts to end their nodes ({notified - begun:.0f} s)")
            self._stop([node for node in self._nodes.values() if node.rules.stop_order == order])
            self._others.have_stopped(order)

    @property
    def _signals_before_killing(self) -> int:
        """The number of signals above which nodes that are stopping now are killed: those so far, or the first."""
        return max(1, self._signals)

    def _stop(self, nodes: Sequence[Supervised]) -> None:
        """Stops nodes, and kills those that have not ended after their grace period or at a second signal.

        Nodes that save data are waited for as long as they make progress, since a disk may be slow.
        """
        for node in nodes:
            if node.worker is not None:
                node.worker.stop()
        signals = self._signals_before_killing
        begun = self._clock()
        grace = max((node.rules.grace for node in nodes), default=0.0)
        deadline = Deadline(grace, self._clock)
        given_up: set[str] = set()
        while any(node.worker is not None for node in nodes):
            self._handle(next_event(self._events, 0.1))
            if self._events.empty():
                alive = {node.name: node.rules.keeps for node in nodes if node.worker is not None}
                for name, why in self._watchdog.look_at_stop(alive, self._clock() - begun, grace):
                    node = self._nodes[name]
                    if name not in given_up and node.worker is not None:
                        given_up.add(name)
                        self._monitor.notify(f"{name}: {why} while the run ends, and is {node.end_by_force}")
                        node.worker.kill()
            late = deadline.has_passed and not any(
                node.worker is not None and node.rules.keeps and self._watchdog.works_slowly(node.name)
                for node in nodes
            )
            if late or self._clock() > self._latest_end or self._signals > signals:
                self._kill(nodes)

    def _kill_all(self) -> None:
        self._ending = True
        self._kill(list(self._nodes.values()))

    def _kill(self, nodes: Sequence[Supervised]) -> None:
        alive = [node for node in nodes if node.worker is not None]
        for node in alive:
            assert node.worker is not None
            self._monitor.notify(f"{node.name}: did not end in time and is {node.end_by_force}")
            node.worker.kill()
        deadline = Deadline(_KILL_SECONDS, self._clock)
        while any(node.worker is not None for node in alive) and not deadline.has_passed:
            self._handle(next_event(self._events, 0.1))


def _hang_text(why: str) -> str:
    """Returns why a node was killed, as the reason why a run has failed, from what it did and for how long."""
    doing = why.removeprefix("in environment ")
    if doing != why:
        call, _, seconds = doing.partition(" for ")
        why = f"environment {call} has not returned for {seconds}"
    return f"{why} (node_timeout)"


def next_event(events: "queue.SimpleQueue[Event]", timeout: float) -> Event | None:
    """Returns the next event, which may be put in a signal handler; None if none comes within `timeout` seconds."""
    with contextlib.suppress(queue.Empty):
        return events.get_nowait()
    # Without that first look, Python 3.10 waits forever if the timeout has passed before it looks at the clock.
    with contextlib.suppress(queue.Empty):
        return events.get(timeout=timeout)
    return None
