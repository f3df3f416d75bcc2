"""Processes that hold a policy's weights as actors do, and note when: the far end of `weights`."""

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Client, Connection
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ..agents.impala import Impala
from ..agents.weights import WeightClient
from ..data import Layout
from ..launch.experiment import Experiment
from ..replay import ReplayDataset, ReplayHandle, sequence_spec

FETCH_SECONDS = 0.03
"""Between two questions for newer weights, as of actors."""
_TICK_SECONDS = 0.01
_CALL_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class ConstantImpala(Impala):
    """IMPALA whose learner learns the same batch of zeros for ever, and needs no actor."""

    def make_dataset(
        self, replay: ReplayHandle, layout: Layout, input_context: tf.distribute.InputContext
    ) -> ReplayDataset:
        sample = sequence_spec(layout._replace(state=()), self.unroll_length, self.batch_size)
        zeros = tree.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), sample)
        dataset = tf.data.Dataset.from_tensors(zeros).repeat()
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


def fetch(torso: str, address: str, notes: Any) -> tuple[Any, None]:
    """An actor's weights, without the actor."""
    import courier
    from courier.python.client import StatusNotOk

    note = Client(notes)
    held = _Held(torso, note)
    weights = WeightClient(courier.Client(address, call_timeout=_CALL_SECONDS), held.variables)

    def fetch_for_ever() -> None:
        while True:
            time.sleep(FETCH_SECONDS)
            # A process that was paused may have been in a call.
            with contextlib.suppress(StatusNotOk):
                weights.fetch()

    def apply() -> int | None:
        return weights.version.step if weights.apply() and weights.version else None

    weights.fetch()
    return _in_threads(fetch_for_ever, functools.partial(held.hold, apply)), None


def receive(torso: str, sender: Any, notes: Any) -> tuple[Any, None]:
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
