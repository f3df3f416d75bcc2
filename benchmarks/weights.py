"""Seconds from a learner's update until the last of 32 actors holds it, and the cost of fetching to the learner.

*To the last actor*: a learner makes a step from time to time; 32 processes that hold a policy's variables record when
they receive the new weights, checking between two timesteps of 10 ms.  The time starts at the end of the step, before
weights are packed.  Our side is the learner node, served by Courier, and the `WeightClient` of actors with its thread.
By hand, the learner writes all variables into one buffer and sends it through a TCP connection to each process, where a
thread waits for it; the variables are likewise assigned between two timesteps, in one call.

*Cost*: steps per second of the learner node on one constant batch while 32 processes fetch, relative to none.  The
processes share the cores with the learner here, so the cost is higher than with separate cores.
"""

import contextlib
import functools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Listener
from typing import Any

import numpy as np
import tensorflow as tf

from ..launch.nodes.acting.weight_fetching import fetch_pause
from .harness import Case
from .nodes import Nodes
from .side import ServingProcess, Side
from .weight_holders import Specs, experiment, fetch, receive

ACTORS = 32
_UPDATES = 5
_LISTENING = "localhost"
_POLL_SECONDS = 0.0005


class _Learner:
    """A learner node with `actors` processes that hold its weights.

    Args:
      torso: torso of the network.
      actors: number of processes.
    """

    def __init__(self, torso: str, actors: int):
        # Forks, before anything else is done.
        self._opened = contextlib.ExitStack()
        self._processes = [self._opened.enter_context(contextlib.closing(ServingProcess())) for _ in range(actors)]
        self._nodes = self._opened.enter_context(
            contextlib.closing(Nodes(experiment(torso), others=("coordinator", "replay")))
        )
        self.role: Any = self._nodes.make_node("learner/0")
        self.role.setup()
        self.actors = actors
        self._assigns = torso != "mlp"
        self.steps = 0
        self.updated = 0.0
        """When the newest step was completed, before its weights were packed."""
        self._notes: list[Connection] = []
        self._note_updates()

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """The policy's variables; the weights that are sent must be those that the learner has just updated."""
        return self.role._prepared.variables

    def learn(self) -> None:
        self.updated = 0.0
        self.role.learn()
        self.steps += 1

    def publish(self) -> None:
        """Publish the newest step, as further steps do if no process waited for weights when it was completed."""
        publishing = self.role._publishing
        while not publishing.weights.has(self.steps):
            publishing.publish_if_due(self.steps, self.variables)
            time.sleep(_POLL_SECONDS)

    def serve(self) -> None:
        """Let the processes fetch by Courier."""
        import courier

        self._server = courier.Server(port=self._nodes.port("learner/0"))
        self._server.Bind("get_variables", self.role.get_variables)
        self._server.Bind("get_part", self.role.get_part)
        self._server.Start()
        address = f"localhost:{self._nodes.port('learner/0')}"
        self._start(lambda notes: functools.partial(fetch, self._specs(), address, self.actors, self._assigns, notes))

    def connect(self) -> list[Connection]:
        """Let the processes receive weights through connections; return the connections."""
        connections: list[Connection] = []
        with Listener((_LISTENING, 0)) as listener:
            accepting = threading.Thread(
                target=lambda: connections.extend(listener.accept() for _ in self._processes), daemon=True
            )
            accepting.start()
            self._start(lambda notes: functools.partial(receive, self._specs(), listener.address, notes))
            accepting.join()
        return connections

    def seconds_to_all(self) -> float:
        """Wait until all processes hold the newest step; return the seconds from its completion to the last of them."""
        held = [0.0] * len(self._notes)
        for index, note in enumerate(self._notes):
            step = -1
            while step < self.steps:
                step, held[index] = note.recv()
        return max(held) - self.updated

    @contextlib.contextmanager
    def fetching(self) -> Iterator[None]:
        """Run the processes only inside the context."""
        for process in self._processes:
            process.resume()
        try:
            yield
        finally:
            for process in self._processes:
                process.pause()

    def close(self) -> None:
        self._opened.close()

    def _note_updates(self) -> None:
        weights = self.role._publishing.weights
        due = weights.due

        def noted(*arguments: Any) -> bool:
            # The learner calls it after every step.
            self.updated = self.updated or time.monotonic()
            return due(*arguments)

        weights.due = noted

    def _start(self, make: Callable[[Any], Callable[[], tuple[Any, Any]]]) -> None:
        with Listener((_LISTENING, 0)) as listener:
            for process in self._processes:
                accepting = threading.Thread(target=lambda: self._notes.append(listener.accept()), daemon=True)
                accepting.start()
                process.start(make(listener.address))
                accepting.join()
                # Until it is measured, the process is paused, to leave the cores to the other processes and the other
                # side.
                process.pause()

    def _specs(self) -> Specs:
        return [(tuple(variable.shape), variable.dtype.name) for variable in self.variables]


class OurWeights(Side):
    """Seconds from an update to the last actor, through the learner node and `WeightClient`."""

    def __init__(self, torso: str, actors: int):
        self._learner = _Learner(torso, actors)
        self._learner.serve()

    def measure(self) -> float:
        return _median_seconds(self._learner, self._learner.publish)

    def close(self) -> None:
        self._learner.close()


class WeightsByHand(Side):
    """The same measurement with one buffer and a connection to each process."""

    def __init__(self, torso: str, actors: int):
        self._learner = _Learner(torso, actors)
        self._connections = self._learner.connect()

    def measure(self) -> float:
        def send() -> None:
            values = [np.ascontiguousarray(variable.numpy()).tobytes() for variable in self._learner.variables]
            buffer = self._learner.steps.to_bytes(8, "little") + b"".join(values)
            for connection in self._connections:
                connection.send_bytes(buffer)

        return _median_seconds(self._learner, send)

    def close(self) -> None:
        self._learner.close()


def _median_seconds(learner: _Learner, send: Callable[[], None]) -> float:
    seconds = []
    with learner.fetching():
        for _ in range(_UPDATES):
            # Long enough for every process to have started its next request.
            time.sleep(3 * fetch_pause(learner.actors))
            learner.learn()
            send()
            seconds.append(learner.seconds_to_all())
    return statistics.median(seconds)


class FetchedFrom(Side):
    """Steps per second of a learner node from which a number of processes fetch."""

    def __init__(self, torso: str, actors: int, seconds: float):
        self._learner = _Learner(torso, actors)
        self._seconds = seconds
        if actors:
            self._learner.serve()

    def measure(self) -> float:
        with self._learner.fetching():
            # The first step compiles; meanwhile, calls that were interrupted by the pause fail and are repeated.
            self._learner.learn()
            time.sleep(3 * fetch_pause(self._learner.actors))
            begun, before = time.perf_counter(), self._learner.steps
            while time.perf_counter() - begun < self._seconds:
                self._learner.learn()
            return (self._learner.steps - before) / (time.perf_counter() - begun)

    def close(self) -> None:
        self._learner.close()


def cases(quick: bool) -> list[Case]:
    actors = 3 if quick else ACTORS
    latency = [
        Case(
            f"to the last actor, {name}",
            "s",
            functools.partial(OurWeights, torso, actors),
            functools.partial(WeightsByHand, torso, actors),
            higher_is_better=False,
        )
        for name, torso in (("MLP", "mlp"), ("ResNet", "impala"))
    ]
    seconds = 0.5 if quick else 5.0
    cost = Case(
        "cost to the learner, MLP",
        "learner steps/s",
        functools.partial(FetchedFrom, "mlp", actors, seconds),
        functools.partial(FetchedFrom, "mlp", 0, seconds),
    )
    return [*latency, cost]
