"""Supervision: starts nodes, restarts those that die, and ends them in order."""

import collections
import math
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..role import NodePolicy
from .outcome import Monitor, Outcome, stop_signals

_KILL_SECONDS = 5.0
# Signals that come sooner after each other are one: `timeout`, for example, sends two at once.
_SIGNAL_SECONDS = 1.0


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
    dictionary), `port`.  From elsewhere: `signal` (its number), `outcome` (how the run ends, an `Outcome`), `failed`
    (a node of another host and its error), `group` (the name of a restart group of which a node has died there)."""
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
    """A node over all its lives."""

    def __init__(self, name: str, policy: NodePolicy, make_worker: Callable[[], Worker]):
        self.name = name
        self.policy = policy
        self.worker: Worker | None = None
        self.deaths: collections.deque[float] = collections.deque()
        self._make_worker = make_worker

    def start(self) -> None:
        self.worker = self._make_worker()
        self.worker.start()

    def may_restart(self) -> bool:
        """Counts a death, and says whether it was not one too many."""
        now = time.monotonic()
        self.deaths.append(now)
        while self.deaths and now - self.deaths[0] > self.policy.restart_window:
            self.deaths.popleft()
        return len(self.deaths) <= self.policy.restarts


class Supervisor:
    """Runs nodes to the end of a run.

    Args:
      nodes: in the order in which they start.
      events: the queue that the workers write to.
      monitor: is told what happens.
      others: the supervisors of other hosts.
    """

    def __init__(
        self,
        nodes: Sequence[Supervised],
        events: "queue.SimpleQueue[Event]",
        monitor: Monitor,
        others: OtherHosts | None = None,
    ):
        self._nodes = {node.name: node for node in nodes}
        self._events = events
        self._monitor = monitor
        self._others = others or Alone()
        self._outcome = Outcome()
        self._signals = 0
        self._last_signal = -math.inf
        self._ending_with_group: set[str] = set()
        """Nodes that were killed because another node of their restart group has died."""
        self._waiting_groups: set[str] = set()
        """Restart groups that have ended here and begin again once they have ended everywhere."""
        self._ending = False

    def run(self) -> Outcome:
        """Runs all nodes until the run is over, then ends them."""
        with stop_signals(lambda number: self._events.put(Event("", "signal", number))):
            try:
                for node in self._nodes.values():
                    node.start()
                while not self._outcome.ended:
                    self._handle(self._next_event(0.5))
                    self._start_waiting_groups()
                self._ending = True
                self._others.ends(self._outcome)
                self._stop_in_order()
            finally:
                self._kill(list(self._nodes.values()))
        return self._outcome

    def _next_event(self, timeout: float) -> Event | None:
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def _handle(self, event: Event | None) -> None:
        if event is None:
            return
        if event.kind == "signal":
            now = time.monotonic()
            if now - self._last_signal > _SIGNAL_SECONDS:
                self._signals += 1
                self._last_signal = now
            self._outcome.interrupted(event.content)
        elif event.kind == "stop":
            self._outcome.reached_limit(event.content)
        elif event.kind == "status":
            self._monitor.status(event.content)
        elif event.kind == "say":
            self._monitor.say(f"{event.node}: {event.content}")
        elif event.kind == "exit":
            self._handle_exit(self._nodes[event.node], event.content)
        elif event.kind == "outcome":
            self._outcome.adopt(event.content)
        elif event.kind == "failed":
            self._fail(*event.content)
        elif event.kind == "group" and not self._outcome.ended:
            self._restart_group(event.content)

    def _handle_exit(self, node: Supervised, how: Exit) -> None:
        node.worker = None
        if how.final:
            self._fail(node.name, how.error or how.description)
        elif self._outcome.ended:
            if not how.clean:
                self._monitor.say(f"{node.name}: {how.description} while the run was ending")
                if node.policy.keeps and how.error:
                    self._fail(node.name, how.error)
        elif node.name in self._ending_with_group:
            self._ending_with_group.discard(node.name)
            self._start_group(node.policy.restart_group)
        elif node.may_restart():
            self._monitor.say(
                f"{node.name}: {how.description}; started again ({len(node.deaths)} of {node.policy.restarts} "
                f"within {node.policy.restart_window:.0f} s)"
            )
            if node.policy.restart_group:
                self._others.group_died(node.policy.restart_group)
                self._restart_group(node.policy.restart_group)
            else:
                node.start()
        else:
            self._fail(node.name, how.error or f"{how.description}, {len(node.deaths)} times in a row")

    def _fail(self, node: str, error: str) -> None:
        self._outcome.failed(node, error)
        if self._ending:
            self._others.ends(self._outcome)

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
                    member.start()

    def _stop_in_order(self) -> None:
        for order in range(1 + max((node.policy.stop_order for node in self._nodes.values()), default=-1)):
            signals = self._signals
            while not self._others.may_stop(order) and self._signals == signals:
                self._handle(self._next_event(0.1))
            self._stop([node for node in self._nodes.values() if node.policy.stop_order == order])
            self._others.have_stopped(order)

    def _stop(self, nodes: Sequence[Supervised]) -> None:
        """Tells nodes to end, and kills those that have not after their grace, or at one more signal."""
        for node in nodes:
            if node.worker is not None:
                node.worker.stop()
        signals = self._signals
        deadline = time.monotonic() + max((node.policy.grace for node in nodes), default=0.0)
        while any(node.worker is not None for node in nodes):
            self._handle(self._next_event(0.1))
            if time.monotonic() > deadline or self._signals > signals:
                self._kill(nodes)

    def _kill(self, nodes: Sequence[Supervised]) -> None:
        alive = [node for node in nodes if node.worker is not None]
        for node in alive:
            assert node.worker is not None
            self._monitor.say(f"{node.name}: did not end in time and is killed")
            node.worker.kill()
        deadline = time.monotonic() + _KILL_SECONDS
        while any(node.worker is not None for node in alive) and time.monotonic() < deadline:
            self._handle(self._next_event(0.1))
