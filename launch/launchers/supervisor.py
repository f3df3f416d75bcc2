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
    """`exit` (an `Exit`), `stop` (the reason why the run is over), `say` (a line), `status` (a dictionary), `port`,
    or `signal` (its number)."""
    content: Any


class Worker(Protocol):
    """One life of one node, in a thread or in a process.  It puts what happens into the supervisor's queue."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Tells it to end."""

    def kill(self) -> None:
        """Ends it at once; like every end, an `exit` event follows."""


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
    """

    def __init__(self, nodes: Sequence[Supervised], events: "queue.SimpleQueue[Event]", monitor: Monitor):
        self._nodes = {node.name: node for node in nodes}
        self._events = events
        self._monitor = monitor
        self._outcome = Outcome()
        self._signals = 0
        self._last_signal = -math.inf
        self._ending_with_group: set[str] = set()
        """Nodes that were killed because another node of their restart group has died."""

    def run(self) -> Outcome:
        """Runs all nodes until the run is over, then ends them."""
        with stop_signals(lambda number: self._events.put(Event("", "signal", number))):
            try:
                for node in self._nodes.values():
                    node.start()
                while not self._outcome.ended:
                    self._handle(self._next_event(0.5))
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

    def _handle_exit(self, node: Supervised, how: Exit) -> None:
        node.worker = None
        if how.final:
            self._outcome.failed(node.name, how.error or how.description)
        elif self._outcome.ended:
            if not how.clean:
                self._monitor.say(f"{node.name}: {how.description} while the run was ending")
                if node.policy.keeps and how.error:
                    self._outcome.failed(node.name, how.error)
        elif node.name in self._ending_with_group:
            self._ending_with_group.discard(node.name)
            self._start_group(node)
        elif node.may_restart():
            self._monitor.say(
                f"{node.name}: {how.description}; started again ({len(node.deaths)} of {node.policy.restarts} "
                f"within {node.policy.restart_window:.0f} s)"
            )
            for other in self._group(node):
                if other.worker is not None and other.name not in self._ending_with_group:
                    self._ending_with_group.add(other.name)
                    other.worker.kill()
            self._start_group(node)
        else:
            self._outcome.failed(node.name, how.error or f"{how.description}, {len(node.deaths)} times in a row")

    def _group(self, node: Supervised) -> list[Supervised]:
        group = node.policy.restart_group
        return [other for other in self._nodes.values() if other.policy.restart_group == group] if group else [node]

    def _start_group(self, node: Supervised) -> None:
        """Starts a node and those of its restart group, once all of them have ended."""
        group = self._group(node)
        if all(member.worker is None for member in group):
            for member in group:
                member.start()

    def _stop_in_order(self) -> None:
        for order in sorted({node.policy.stop_order for node in self._nodes.values()}):
            nodes = [node for node in self._nodes.values() if node.policy.stop_order == order]
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
