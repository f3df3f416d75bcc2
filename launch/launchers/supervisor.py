"""Supervision: starts nodes, restarts those that die, and ends them in order."""

import collections
import math
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..nodes.node import NodePolicy
from ..nodes.progress import HEARTBEAT
from ..stop_signals import stop_signals
from .progress_watchdog import ProgressWatchdog
from .run_outcome import GuardedMonitor, Monitor, Outcome, error_text

_KILL_SECONDS = 2.0
# After which it is said that the end of the run waits for other hosts.
_OTHERS_SECONDS = 10.0
# After an error of the supervisor itself all nodes together have this long to end.
_FAILED_SECONDS = 6.0
# Signals that come sooner after each other are one: `timeout`, for example, sends two at once.
SIGNAL_SECONDS = 1.0


class Exit(NamedTuple):
    """How a node has ended."""

    clean: bool
    description: str
    """In a few words: `killed by SIGKILL`, `exit code 1`."""
    error: str | None = None
    """Its traceback, or the one line of a `CallboardError`."""
    final: bool = False
    """Whether starting it again would be of no use (a `CallboardError`)."""


class Event(NamedTuple):
    """What a worker or a signal handler puts into the supervisor's queue."""

    node: str
    kind: str
    """From a node: `exit` (an `Exit`), `stop` (the reason why the run is over), `say` (a line), `status` (a
    dictionary), `heartbeat` (a `progress.Heartbeat`), `port`, `signal` (a number, where a signal reached the node).
    From elsewhere: `signal` (its number), `outcome` (how the run ends, an `Outcome`), `failed` (a node of another host
    and its error), `line` (that is said as it is), `group` (the name of a restart group of which a node has died
    there), `monitor` (an exception that the monitor has raised)."""
    content: Any


class Worker(Protocol):
    """One life of one node, in a thread or in a process.  It puts what happens into the supervisor's queue."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Tells it to end."""

    def kill(self) -> None:
        """Ends it at once; like every end, an `exit` event follows."""


class OtherHosts(Protocol):
    """What supervisors agree on where a run is spread over several hosts."""

    def may_stop(self, order: int) -> bool:
        """Whether the nodes with this stop order may be told to end."""

    def have_stopped(self, order: int) -> None:
        """All nodes of this supervisor up to this stop order have ended."""

    def group_died(self, group: str) -> None:
        """A node of a restart group has died here."""

    def group_ended(self, group: str) -> None:
        """All nodes of a restart group have ended here."""

    def may_start(self, group: str) -> bool:
        """Whether a restart group has ended everywhere, so that it may begin again."""

    def ends(self, outcome: Outcome) -> None:
        """The run ends here, as far as this supervisor knows; called again where a failure is found on the way."""


class Alone:
    """No other hosts."""

    def may_stop(self, order: int) -> bool:
        return True

    def have_stopped(self, order: int) -> None:
        pass

    def group_died(self, group: str) -> None:
        pass

    def group_ended(self, group: str) -> None:
        pass

    def may_start(self, group: str) -> bool:
        return True

    def ends(self, outcome: Outcome) -> None:
        pass


class Supervised:
    """A node over all its lives.

    Args:
      name: of the node.
      policy: how it is treated.
      make_worker: makes the worker of its next life.
      can_be_killed: whether a worker's `kill` ends it also where it hangs.
    """

    def __init__(self, name: str, policy: NodePolicy, make_worker: Callable[[], Worker], can_be_killed: bool = True):
        self.name = name
        self.policy = policy
        self.can_be_killed = can_be_killed
        self.has_hung = False
        """Whether it is being killed because it hangs."""
        self.worker: Worker | None = None
        self.deaths: collections.deque[float] = collections.deque()
        self._make_worker = make_worker

    def start(self) -> None:
        worker = self._make_worker()
        worker.start()
        self.worker = worker

    def may_restart(self, now: float) -> bool:
        """Counts a death at the time `now`, in seconds, and says whether it was not one too many."""
        self.deaths.append(now)
        window = self.policy.restart_window
        if self.has_hung:
            # It takes that long to find out.
            window += self.policy.restarts * self.policy.timeout
            self.has_hung = False
        while self.deaths and now - self.deaths[0] > window:
            self.deaths.popleft()
        return len(self.deaths) <= self.policy.restarts


class Supervisor:
    """Runs nodes to the end of a run.

    Args:
      nodes: in the order in which they start.
      events: the queue that the workers write to.
      monitor: is told what happens.
      others: the supervisors of other hosts.
      clock: monotonic time in seconds.
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
        self._others = others or Alone()
        self._clock = clock
        self._watchdog = ProgressWatchdog(self._monitor.say, clock)
        self._outcome = Outcome()
        self._signals = 0
        self._last_signal = -math.inf
        self._own_signal_is_due = False
        """Whether a node has reported a signal that ended the run, and that this process may have been sent too."""
        self._ending_with_group: set[str] = set()
        """Nodes that were killed because another node of their restart group has died."""
        self._waiting_groups: set[str] = set()
        """Restart groups that have ended here and begin again once they have ended everywhere."""
        self._ending = False
        self._latest_end = math.inf
        """When nodes that still run are killed, whatever their grace."""

    def run(self) -> Outcome:
        """Runs all nodes until the run is over, then ends them.  An error on the way ends the run as a failure."""
        with stop_signals(lambda number: self._events.put(Event("", "signal", number))):
            for part in (self._run_until_over, self._stop_in_order, self._kill_all):
                try:
                    part()
                except BaseException as error:
                    # Whatever it is, no node may be left behind.
                    self._fail_itself(error)
        return self._outcome

    def _run_until_over(self) -> None:
        for node in self._nodes.values():
            self._start(node)
        while not self._outcome.ended:
            self._handle(self._next_event(0.5))
            self._start_waiting_groups()
            self._end_hanging()

    def _next_event(self, timeout: float) -> Event | None:
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

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
        elif event.kind == "say":
            self._monitor.say(f"{event.node}: {event.content}")
        elif event.kind == "line":
            self._monitor.say(event.content)
        elif event.kind == "exit":
            self._handle_exit(self._nodes[event.node], event.content)
        elif event.kind == "outcome":
            self._outcome.adopt(event.content)
        elif event.kind == "failed":
            self._fail(*event.content)
        elif event.kind == "group" and not self._outcome.ended:
            self._restart_group(event.content)
        elif event.kind == "monitor" and not self._outcome.ended:
            self._fail_itself(event.content)

    def _handle_signal(self, number: int, from_node: bool) -> None:
        # Where all processes are signaled at once, nodes may report it before the launcher's own comes, or much later.
        # It is one signal, and hurries nothing.
        now = self._clock()
        if from_node:
            self._own_signal_is_due = self._own_signal_is_due or not self._outcome.ended
        elif now - self._last_signal > SIGNAL_SECONDS:
            self._last_signal = now
            self._signals += not self._own_signal_is_due
            self._own_signal_is_due = False
        self._outcome.interrupted(number)

    def _handle_exit(self, node: Supervised, how: Exit) -> None:
        node.worker = None
        self._watchdog.ended(node.name)
        if how.final:
            self._fail(node.name, how.error or how.description)
        elif self._outcome.ended or self._ending:
            if not how.clean:
                self._monitor.say(f"{node.name}: {how.description} while the run was ending")
                # A signal says by itself that this is not the end that was planned.
                if node.policy.keeps and (how.error or not self._outcome.exit_code):
                    self._fail(node.name, how.error or f"{how.description} before it had kept what it has to keep")
        elif node.name in self._ending_with_group:
            self._ending_with_group.discard(node.name)
            self._start_group(node.policy.restart_group)
        elif node.may_restart(self._clock()):
            self._monitor.say(
                f"{node.name}: {how.description}; started again ({len(node.deaths)} of {node.policy.restarts} "
                f"within {node.policy.restart_window:.0f} s)"
            )
            if node.policy.restart_group:
                self._others.group_died(node.policy.restart_group)
                self._restart_group(node.policy.restart_group)
            else:
                self._start(node)
        else:
            self._fail(node.name, how.error or f"{how.description}, {len(node.deaths)} times in a row")

    def _start(self, node: Supervised) -> None:
        """Starts a node; where that is impossible the run has failed."""
        if self._outcome.ended:
            return
        try:
            self._watchdog.began(node.name, node.policy.timeout)
            node.start()
        except Exception as error:
            self._fail(node.name, error_text(error))

    def _end_hanging(self) -> None:
        """Kills nodes that have made no progress for too long."""
        if not self._events.empty():
            return  # Their heartbeats may be among these.
        for name, why in self._watchdog.look():
            node = self._nodes[name]
            if not node.can_be_killed:
                self._fail(name, f"{why}, and a node in a thread cannot be killed: take --launcher processes")
            elif node.worker is not None and not node.has_hung and name not in self._ending_with_group:
                node.has_hung = True
                self._monitor.say(f"{name}: {why}, and is killed")
                node.worker.kill()

    def _fail(self, node: str, error: str) -> None:
        self._outcome.failed(node, error)
        if self._ending:
            self._others.ends(self._outcome)

    def _fail_itself(self, error: BaseException) -> None:
        """Ends the run because of an error that no node is to blame for."""
        self._outcome.failed("launcher", error_text(error))
        self._latest_end = min(self._latest_end, self._clock() + _FAILED_SECONDS)

    def _restart_group(self, group: str) -> None:
        """Kills the nodes of a restart group that live, and starts all once they have ended."""
        for node in self._group(group):
            if node.worker is not None and node.name not in self._ending_with_group:
                self._ending_with_group.add(node.name)
                node.worker.kill()
        self._start_group(group)

    def _group(self, group: str) -> list[Supervised]:
        return [node for node in self._nodes.values() if node.policy.restart_group == group]

    def _start_group(self, group: str) -> None:
        """Starts the nodes of a restart group, once all of them have ended, on other hosts too."""
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
        for order in range(1 + max((node.policy.stop_order for node in self._nodes.values()), default=-1)):
            signals = self._signals
            begun = said = self._clock()
            while not self._others.may_stop(order) and self._signals == signals and self._clock() < self._latest_end:
                self._handle(self._next_event(0.1))
                if self._clock() - said > _OTHERS_SECONDS:
                    said = self._clock()
                    self._monitor.say(f"waiting for other hosts to end their nodes ({said - begun:.0f} s)")
            self._stop([node for node in self._nodes.values() if node.policy.stop_order == order])
            self._others.have_stopped(order)

    def _stop(self, nodes: Sequence[Supervised]) -> None:
        """Tells nodes to end, and kills those that have not after their grace, or at one more signal.

        Those that write what they keep are waited for as long as they make progress: a disk may be slow.
        """
        for node in nodes:
            if node.worker is not None:
                node.worker.stop()
        signals = self._signals
        begun = self._clock()
        grace = max((node.policy.grace for node in nodes), default=0.0)
        deadline = begun + grace
        given_up: set[str] = set()
        while any(node.worker is not None for node in nodes):
            self._handle(self._next_event(0.1))
            if self._events.empty():
                alive = {node.name: node.policy.keeps for node in nodes if node.worker is not None}
                for name, why in self._watchdog.look_at_stop(alive, self._clock() - begun, grace):
                    worker = self._nodes[name].worker
                    if name not in given_up and worker is not None:
                        given_up.add(name)
                        self._monitor.say(f"{name}: {why} while the run ends, and is killed")
                        worker.kill()
            late = self._clock() > deadline and not any(
                node.worker is not None and node.policy.keeps and self._watchdog.works_slowly(node.name)
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
            self._monitor.say(f"{node.name}: did not end in time and is killed")
            node.worker.kill()
        deadline = self._clock() + _KILL_SECONDS
        while any(node.worker is not None for node in alive) and self._clock() < deadline:
            self._handle(self._next_event(0.1))
