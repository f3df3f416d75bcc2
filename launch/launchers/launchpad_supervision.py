"""Supervision of nodes that Launchpad has started: they report to the supervisor, which runs in one of their processes.

Every node has a thread that delivers the node's messages to the supervisor and receives the request to stop, over the
Courier server of the coordinator.  All nodes are on one machine.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import psutil

from ..nodes.node import NodeHandle, Unreachable
from .supervision.supervisor import Event, Exit

_POLL_SECONDS = 0.2
_CALL_SECONDS = 5.0
_START_SECONDS = 600.0
"""Time within which the supervisor must answer for the first time."""
_ALONE_SECONDS = 30.0
"""Time without an answer of the supervisor after which a node stops by itself."""
_BEGIN_SECONDS = 5.0
"""Time that a stopped supervisor waits for a node that has not reported yet: it could not tell it later to stop."""


class SupervisorConnection:
    """A node's connection to its supervisor.

    Args:
      name: name of the node.
      coordinator: handle of the node that serves the supervisor's `LaunchpadWorkers`.
      stop: set when the node has to stop.
      program_stop: set when Launchpad stops the program; a node whose supervisor does not answer then stops at once.
      clock: returns monotonic time in seconds.
    """

    def __init__(
        self,
        name: str,
        coordinator: NodeHandle,
        stop: threading.Event,
        program_stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._name = name
        self._coordinator = coordinator
        self._stop = stop
        self._program_stop = program_stop
        self._clock = clock
        self._client: Any = None
        self._queued: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._unsent: list[tuple[str, Any]] = []
        self._sequence = 0
        self._answered_until = clock() + _START_SECONDS
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._deliver_until_closed, name="supervisor-connection", daemon=True).start()

    def send(self, kind: str, content: Any) -> None:
        """Queues a message to the supervisor."""
        self._queued.put((kind, content))

    def close(self) -> bool:
        """Delivers what is queued, and ends; returns whether the supervisor has received it."""
        self._closed.set()
        return self.deliver() or self.deliver()

    def deliver(self) -> bool:
        """Delivers messages; returns False if some are left for the next call, as when the supervisor does not answer.

        Sets `stop` if the supervisor requests it, or has not answered for too long.
        """
        with self._lock:
            if not self._unsent:
                self._sequence += 1
                while not self._queued.empty():
                    self._unsent.append(self._queued.get())
            try:
                self._client = self._client or self._coordinator.client(_CALL_SECONDS)
                stops = self._client.take_messages(
                    self._name, os.getpid(), self._sequence, cloudpickle.dumps(self._unsent)
                )
            except Unreachable as error:
                self._client = None
                alone = self._program_stop.is_set() or self._clock() > self._answered_until
                if alone and not self._stop.is_set():
                    logging.warning("the coordinator does not answer, and the node ends: %s", error)
                    self._stop.set()
                return False
            self._unsent = []
            self._answered_until = self._clock() + _ALONE_SECONDS
            if stops:
                self._stop.set()
            return self._queued.empty()

    def _deliver_until_closed(self) -> None:
        while not self._closed.is_set():
            self.deliver()
            self._closed.wait(_POLL_SECONDS)


class LaunchpadWorker:
    """A node that Launchpad has started, as a `Worker` of the supervisor.  It has one incarnation.

    Args:
      name: name of the node.
      events: the supervisor's queue.
      clock: returns monotonic time in seconds.
    """

    def __init__(self, name: str, events: "queue.SimpleQueue[Event]", clock: Callable[[], float] = time.monotonic):
        self._name = name
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._process: psutil.Process | None = None
        self._sequence = 0
        self._stops = False
        self._begins_until = 0.0
        """When it is stopped: the time until which it may still begin."""
        self._over = False
        """Whether the exit was reported."""

    def start(self) -> None:
        """Does nothing: Launchpad starts the node."""

    def stop(self) -> None:
        with self._lock:
            if not self._stops:
                self._stops = True
                self._begins_until = self._clock() + _BEGIN_SECONDS

    def kill(self) -> None:
        with self._lock:
            self._stops = True
            if self._process is None or self._process.pid == os.getpid():
                self._end(Exit(clean=False, description="left behind"))
                return
            try:
                self._process.kill()
            except psutil.NoSuchProcess:
                pass
            self._end(Exit(clean=False, description="killed"))

    def take_messages(self, process: int, sequence: int, messages: list[tuple[str, Any]]) -> bool:
        """Takes the node's messages; returns whether it has to stop.

        Args:
          process: id of the node's process.
          sequence: number of the call; a call that arrives twice is ignored the second time.
          messages: pairs of kind and content, see `Event`.
        """
        with self._lock:
            if self._process is None:
                self._process = psutil.Process(process)
            if sequence > self._sequence:
                self._sequence = sequence
                for kind, content in messages:
                    if kind == "exit":
                        self._end(content)
                    else:
                        self._events.put(Event(self._name, kind, content))
            return self._stops

    def check_process(self) -> None:
        """Reports the exit of the node if its process has ended without doing so, or does not begin before a stop."""
        with self._lock:
            if self._process is None:
                if self._stops and self._clock() > self._begins_until:
                    self._end(Exit(clean=True, description="ended before it began"))
            elif not is_running(self._process):
                self._end(Exit(clean=False, description="its process has ended"))

    def _end(self, how: Exit) -> None:
        if self._over:
            return
        self._over = True
        if how.clean and not self._stops:
            how = Exit(clean=False, description="ended before it was stopped")
        if not how.clean:
            # Nothing restarts the node, and the error is what the user reads.
            how = how._replace(error=how.error or how.description)
        self._events.put(Event(self._name, "exit", how))


class LaunchpadWorkers:
    """The nodes that report to a supervisor; `take_messages` is served to them.

    Args:
      workers: the nodes by name.
    """

    def __init__(self, workers: Mapping[str, LaunchpadWorker]):
        self._workers = workers

    def take_messages(self, name: str, process: int, sequence: int, pickled: bytes) -> bool:
        """Takes the pickled messages of a node; as `LaunchpadWorker.take_messages`."""
        return self._workers[name].take_messages(process, sequence, cloudpickle.loads(pickled))

    def check_processes(self) -> None:
        """Reports the nodes whose processes have ended."""
        for worker in self._workers.values():
            worker.check_process()


def is_running(process: psutil.Process) -> bool:
    """Returns whether a process has not ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
