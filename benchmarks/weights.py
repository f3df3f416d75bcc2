"""Seconds from a learner's update until the last of 32 actors holds it, and what fetching costs the learner.

*To the last actor*: a learner makes a step every now and then; 32 processes that keep a policy's variables note when
they hold them, looked at between two ticks of 10 ms.  Ours are the learner node, served by Courier, and the
`WeightClient` of actors with its thread.  By hand, the learner writes all variables into one buffer and sends it down
a TCP connection to each process, where a thread waits for it; the variables are assigned between two ticks as well.

*Cost*: steps a second of the learner node on one constant batch while 32 processes fetch, over those with none.  The
processes share the cores with the learner here, so this is more than it costs where they have cores of their own.
"""

import contextlib
import dataclasses
import functools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ..agents.acting import trace_layout
from ..agents.impala import Impala
from ..agents.weights import WeightClient
from ..data import Layout, Sample, Version
from ..launch.experiment import Experiment
from ..replay import ReplayDataset, ReplayHandle, sequence_signature
from .harness import Case
from .side import ServingProcess, Side

ACTORS = 32
_TICK_SECONDS = 0.01
_FETCH_SECONDS = 0.03
"""As actors do."""
_CALL_SECONDS = 5.0
_UPDATES = 5
_LISTENING = "localhost"


@dataclasses.dataclass(frozen=True)
class ConstantImpala(Impala):
    """IMPALA whose learner learns the same batch of zeros for ever, and needs no actor."""

    def make_dataset(
        self, replay: ReplayHandle, layout: Layout, input_context: tf.distribute.InputContext
    ) -> ReplayDataset:
        item = sequence_signature(layout, self.unroll_length, self.batch_size)
        record = tree.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), item.record)
        dataset = tf.data.Dataset.from_tensors(Sample(record, ())).repeat()
        return ReplayDataset(dataset, "queue", 1.0)


def experiment(torso: str) -> Experiment:
    """The run whose learner is measured; with a large network its steps are small, for it makes few."""
    env, length, batch_size = ("CartPole-v1", 20, 32) if torso == "mlp" else ("procgen:coinrun", 1, 1)
    return Experiment(
        ConstantImpala(torso=torso, unroll_length=length, batch_size=batch_size),
        env,
        actors=1,
        envs_per_actor=batch_size,
        evaluator=False,
        max_steps=10**9,
        checkpoint_every=1e9,
    )


class _Held:
    """When a policy's variables were renewed, as processes tell each other: `(learner step, time.monotonic())`."""

    def __init__(self, torso: str, note: Connection):
        run = experiment(torso)
        layout = run.layout()
        policy = run.agent.make_policy(run.agent.make_networks(layout), "train")
        self.variables: Sequence[tf.Variable] = policy.variables
        self._note = note

    def hold(self, apply: Callable[[], int | None]) -> None:
        """Looks between two ticks, for ever; `apply` gives the step of new weights, or None."""
        while True:
            step = apply()
            if step is not None:
                self._note.send((step, time.monotonic()))
            time.sleep(_TICK_SECONDS)


def _fetch(torso: str, address: str, notes: Any) -> tuple[Any, None]:
    """An actor's weights, without the actor."""
    import courier
    from courier.python.client import StatusNotOk

    note = Client(notes)
    held = _Held(torso, note)
    weights = WeightClient(courier.Client(address, call_timeout=_CALL_SECONDS), held.variables)

    def fetch_for_ever() -> None:
        while True:
            time.sleep(_FETCH_SECONDS)
            # A process that was paused may have been in a call.
            with contextlib.suppress(StatusNotOk):
                weights.fetch()

    def apply() -> int | None:
        return weights.version.step if weights.apply() and weights.version else None

    weights.fetch()
    return _in_threads(fetch_for_ever, functools.partial(held.hold, apply)), None


def _receive(torso: str, sender: Any, notes: Any) -> tuple[Any, None]:
    """The same by hand."""
    connection, note = Client(sender), Client(notes)
    held = _Held(torso, note)
    newest: list[bytes] = []

    def receive_for_ever() -> None:
        while True:
            newest[:] = [connection.recv_bytes()]

    def apply() -> int | None:
        if not newest:
            return None
        buffer = newest.pop()
        begin = 8
        for variable in held.variables:
            size = variable.dtype.size * int(np.prod(variable.shape))
            values = np.frombuffer(buffer, variable.dtype.as_numpy_dtype, size // variable.dtype.size, begin)
            variable.assign(values.reshape(variable.shape))
            begin += size
        return int.from_bytes(buffer[:8], "little")

    return _in_threads(receive_for_ever, functools.partial(held.hold, apply)), None


def _in_threads(*functions: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    return threads


class _Learner:
    """A learner node with `actors` processes that hold its weights.

    Args:
      torso: of the network.
      actors: number of processes.
    """

    def __init__(self, torso: str, actors: int):
        from .nodes import Nodes

        # Forks, before anything else is done.
        self._opened = contextlib.ExitStack()
        self._processes = [self._opened.enter_context(contextlib.closing(ServingProcess())) for _ in range(actors)]
        self._torso = torso
        self._nodes = self._opened.enter_context(
            contextlib.closing(Nodes(experiment(torso), others=("coordinator", "replay")))
        )
        self.role: Any = self._nodes.make_role("learner/0")
        self.role.setup()
        self.steps = 0
        self._notes: list[Connection] = []

    def learn(self) -> None:
        self.role.learn()
        self.steps += 1

    def serve(self) -> None:
        """Lets the processes fetch by Courier."""
        import courier

        self._server = courier.Server(port=self._nodes.port("learner/0"))
        self._server.Bind("get_variables", self.role.get_variables)
        self._server.Start()
        address = f"localhost:{self._nodes.port('learner/0')}"
        self._start(lambda notes: functools.partial(_fetch, self._torso, address, notes))

    def connect(self) -> list[Connection]:
        """Lets the processes receive what is sent down these connections."""
        connections = []
        with Listener((_LISTENING, 0)) as listener:
            accepting = threading.Thread(
                target=lambda: connections.extend(listener.accept() for _ in self._processes), daemon=True
            )
            accepting.start()
            self._start(lambda notes: functools.partial(_receive, self._torso, listener.address, notes))
            accepting.join()
        return connections

    def seconds_to_all(self, since: float) -> float:
        """Waits until all processes hold the newest step; seconds from `since` to the last of them."""
        held = [0.0] * len(self._notes)
        for index, note in enumerate(self._notes):
            step = -1
            while step < self.steps:
                step, held[index] = note.recv()
        return max(held) - since

    @contextlib.contextmanager
    def fetching(self) -> Iterator[None]:
        """The processes run only meanwhile."""
        for process in self._processes:
            process.resume()
        try:
            yield
        finally:
            for process in self._processes:
                process.pause()

    def close(self) -> None:
        self._opened.close()

    def _start(self, make: Callable[[Any], Callable[[], tuple[Any, Any]]]) -> None:
        with Listener((_LISTENING, 0)) as listener:
            for process in self._processes:
                accepting = threading.Thread(target=lambda: self._notes.append(listener.accept()), daemon=True)
                accepting.start()
                process.start(make(listener.address))
                accepting.join()


class OurWeights(Side):
    """Seconds from an update to the last actor, through the learner node and `WeightClient`."""

    def __init__(self, torso: str, actors: int):
        self._learner = _Learner(torso, actors)
        self._learner.serve()

    def measure(self) -> float:
        return _median_seconds(self._learner, lambda: None)

    def close(self) -> None:
        self._learner.close()


class WeightsByHand(Side):
    """The same with one buffer and a connection to each process."""

    def __init__(self, torso: str, actors: int):
        self._learner = _Learner(torso, actors)
        self._connections = self._learner.connect()
        # What is sent must be what the learner has learnt.
        self._variables: Sequence[tf.Variable] = self._learner.role._policy_variables

    def measure(self) -> float:
        def send() -> None:
            values = [np.ascontiguousarray(variable.numpy()).tobytes() for variable in self._variables]
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
            # Long enough for everybody to have asked again.
            time.sleep(3 * _FETCH_SECONDS)
            learner.learn()
            since = time.monotonic()
            send()
            seconds.append(learner.seconds_to_all(since))
    return statistics.median(seconds)


class FetchedFrom(Side):
    """Steps a second of a learner node from which so many processes fetch."""

    def __init__(self, torso: str, actors: int, seconds: float):
        self._learner = _Learner(torso, actors)
        self._seconds = seconds
        if actors:
            self._learner.serve()

    def measure(self) -> float:
        with self._learner.fetching():
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
