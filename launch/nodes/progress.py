"""The activity of a node: marks set by its main loop, and the heartbeats that carry them to the launcher."""

import threading
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ...data import Nest, Timestep
from ...environments import BatchedEnvironment, EnvironmentWrapper
from ...runtime.deadlines import Clock

HEARTBEAT = "heartbeat"
"""Kind of the message to the launcher that holds a `NodeHeartbeat`."""
HEARTBEAT_SECONDS = 1.0

Kind = Literal["work", "slow", "shared", "wait"]
"""Kinds of activity: `work` of the node itself that ends soon; `slow` work that may take minutes, such as compilation;
`shared` work, which ends when all nodes of the restart group take part in it; `wait` for another node, which is not the
fault of the waiting one."""


class NodeHeartbeat(NamedTuple):
    """A heartbeat of a node, with what it was doing at that time."""

    marks: int
    """Number of marks of work so far."""
    activity: str
    """For example `in environment step`, `waiting for data`."""
    kind: Kind
    achieved: int = 0
    """See `Progress.achieved`."""


_STARTING: tuple[str, Kind] = ("starting", "slow")
_UNMARKED: tuple[str, Kind] = ("in its step", "work")


class Progress:
    """The activity of a node's main loop.

    The main loop stores a mark before everything that may hang; a thread of the launcher reads it periodically.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._count = 0
        self._activity = _STARTING
        self._clock = clock
        self._wait: tuple[str, float] | None = None
        """The object for which the node waits, and the time at which it began to wait."""
        self._waited: dict[str, float] = {}
        self.achieved = 0
        """The amount of the node's own work that it has done so far, such as learner steps."""
        self.transfer: tuple[int, float] | None = None
        """Size in bytes of weights that came in parts, and the seconds that they took, or take at the present rate."""
        self.evaluation: tuple[int, int] | None = None
        """How many episodes of an evaluation have ended, and of how many; None where none is under way."""
        self.waits_for: Callable[[], str] = lambda: ""
        """Returns what the current work waits for, empty if nothing; called for every heartbeat."""

    def works(self, activity: str) -> None:
        """Marks the start of the node's own work, which ends soon unless it hangs."""
        self._activity = (activity, "work")
        self._count += 1
        if self._wait is not None:
            self._end_wait()

    def works_slowly(self, activity: str) -> None:
        """Marks the start of the node's own work that may take minutes."""
        self._activity = (activity, "slow")
        self._count += 1
        if self._wait is not None:
            self._end_wait()

    def works_with_others(self, activity: str) -> None:
        """Marks the start of work that ends when all nodes of the restart group take part in it."""
        self._activity = (activity, "shared")
        self._count += 1
        if self._wait is not None:
            self._end_wait()

    def waits(self, name: str) -> None:
        """Marks that the node waits for another one, or for data."""
        self._activity = (f"waiting for {name}", "wait")
        if self._wait is None or self._wait[0] != name:
            self._end_wait()
            self._wait = (name, self._clock())

    def seconds_waited(self) -> dict[str, float]:
        """Returns the seconds for which the node has waited so far, by what it waited for, as marked by `waits`."""
        waited = dict(self._waited)
        wait = self._wait
        if wait is not None:
            name, since = wait
            waited[name] = waited.get(name, 0.0) + self._clock() - since
        return waited

    def _end_wait(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            name, since = wait
            self._waited[name] = self._waited.get(name, 0.0) + self._clock() - since

    def evaluates(self, ended: int, episodes: int) -> None:
        """Marks how many episodes of an evaluation have ended."""
        self.evaluation = (ended, episodes) if ended < episodes else None

    def achieves(self, count: int = 1) -> None:
        """Counts what the node has done of that for which it exists."""
        self.achieved += count

    def begins_step(self) -> None:
        """Marks an iteration of the main loop; counts as progress only if the node sets no marks itself."""
        if self._activity is _STARTING:
            self._activity = _UNMARKED
        if self._activity is _UNMARKED:
            self._count += 1

    def heartbeat(self) -> NodeHeartbeat:
        """Returns the newest mark."""
        awaited = self.waits_for()
        if awaited:
            return NodeHeartbeat(self._count, f"waiting for {awaited}", "wait", self.achieved)
        return NodeHeartbeat(self._count, *self._activity, self.achieved)


class HeartbeatSender:
    """Sends heartbeats from a background thread until `close`.

    Args:
      progress: progress of the node.
      send: sends a message `(kind, content)` to the launcher.
      seconds: interval between heartbeats.
    """

    def __init__(self, progress: Progress, send: Callable[[str, Any], None], seconds: float = HEARTBEAT_SECONDS):
        self._progress = progress
        self._send = send
        self._seconds = seconds
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="heartbeats", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._send(HEARTBEAT, self._progress.heartbeat())
            self._closed.wait(self._seconds)


class MarkedEnvironment(EnvironmentWrapper):
    """Forwards all calls to another environment, and marks its steps and resets.

    Args:
      environment: the other environment.
      progress: progress of the node that steps it.
    """

    def __init__(self, environment: BatchedEnvironment, progress: Progress):
        super().__init__(environment)
        self._progress = progress

    def reset(self) -> Timestep:
        self._progress.works_slowly("in environment reset")
        timestep = self._environment.reset()
        # The first forward pass compiles the policy.
        self._progress.works_slowly("in first forward pass (compiling)")
        return timestep

    def step(self, actions: Nest) -> Timestep:
        self._progress.works("in environment step")
        timestep = self._environment.step(actions)
        self._progress.works("acting")
        return timestep

    def close(self) -> None:
        self._progress.works("closing its environments")
        self._environment.close()
