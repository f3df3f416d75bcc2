"""Processes that hold a policy's weights as actors do, and record when they receive them; used by `weights`."""

import contextlib
import dataclasses
import functools
import math
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Client, Connection
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ..agents.impala import Impala
from ..agents.variables.weights import WeightClient
from ..data import Layout
from ..launch.experiments.experiment import Experiment
from ..launch.nodes.acting.weight_fetching import fetch_pause
from ..replay import ReplayDataset, ReplayHandle, SequenceQueue, sequence_spec
from ..settings.nested_settings import from_values

Specs = Sequence[tuple[tuple[int, ...], str]]
"""Shapes and dtypes of a policy's variables."""

_POLL_SECONDS = 0.01
_CALL_SECONDS = 5.0


class ConstantQueue(SequenceQueue):
    """Yields the same batch of zeros forever."""

    def dataset(self, replay: ReplayHandle, input_context: tf.distribute.InputContext) -> ReplayDataset:
        sample = sequence_spec(self.layout._replace(state=()), self.length, self.batch_size)
        zeros = tree.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), sample)
        dataset = tf.data.Dataset.from_tensors(zeros).repeat()
        return ReplayDataset(dataset, "queue", 1.0)


@dataclasses.dataclass(frozen=True)
class ConstantImpala(Impala):
    """IMPALA whose learner learns from the same batch of zeros forever and needs no actor."""

    def make_replay(self, layout: Layout) -> ConstantQueue:
        return ConstantQueue(**vars(super().make_replay(layout)))


def experiment(torso: str) -> Experiment:
    """Return the experiment whose learner is measured; a large network gets small batches, to keep its steps short."""
    env, length, batch_size = ("CartPole-v1", 20, 32) if torso == "mlp" else ("procgen:coinrun", 1, 1)
    return Experiment(
        from_values(
            ConstantImpala,
            {
                "network.torso": torso,
                "network.hidden_sizes": (64, 64),
                "network.head_sizes": (),
                "network.normalize_observations": False,
                # There are no episodes, and so no returns.
                "normalize_rewards": False,
                "unroll_length": length,
                "batch_size": batch_size,
            },
        ),
        env,
        actors=1,
        envs_per_actor=batch_size,
        evaluator=False,
        max_steps=10**9,
        checkpoint_every=1e8,
    )


class _Held:
    """A policy's variables; sends each update's `(learner step, time.monotonic())` to the measuring process."""

    def __init__(self, specs: Specs, note: Connection):
        # Without the policy, because building 32 networks one after the other would take minutes.
        self.variables = [tf.Variable(np.zeros(shape, dtype)) for shape, dtype in specs]
        self._note = note

    def hold(self, apply: Callable[[], int | None]) -> None:
        """Check between two timesteps, forever; `apply` returns the step of new weights, or None."""
        while True:
            step = apply()
            if step is not None:
                self._note.send((step, time.monotonic()))
            time.sleep(_POLL_SECONDS)


def fetch(specs: Specs, address: str, askers: int, assigns: bool, notes: Any) -> tuple[Any, None]:
    """Hold weights as an actor does, without the actor.

    Args:
      specs: shapes and dtypes of the variables.
      address: where the learner serves.
      askers: number of processes that fetch.
      assigns: whether weights are assigned to the variables; actors of small networks only keep them as arrays.
      notes: where updates are noted.
    """
    import courier
    from courier.python.client import StatusNotOk

    note = Client(notes)
    held = _Held(specs, note)
    weights = WeightClient(courier.Client(address, call_timeout=_CALL_SECONDS), held.variables)
    stop = threading.Event()

    def fetch_once() -> None:
        # A process that was paused may have been in a call.
        with contextlib.suppress(StatusNotOk):
            weights.fetch()

    def apply() -> int | None:
        newer = weights.apply() if assigns else weights.take()
        return weights.version.step if newer and weights.version else None

    weights.fetch()
    weights.keep_fetching(fetch_once, lambda: fetch_pause(askers), stop)
    return (_in_thread(functools.partial(held.hold, apply)), stop), None


def receive(specs: Specs, sender: Any, notes: Any) -> tuple[Any, None]:
    """Hold weights received through a plain connection."""
    connection, note = Client(sender), Client(notes)
    held = _Held(specs, note)
    newest: list[bytes] = []

    @tf.function(input_signature=[[tf.TensorSpec(*spec) for spec in specs]], autograph=False)
    def assign(values: Sequence[tf.Tensor]) -> None:
        for variable, value in zip(held.variables, values, strict=True):
            variable.assign(value)

    assign([variable.value() for variable in held.variables])

    def receive_for_ever() -> None:
        while True:
            newest[:] = [connection.recv_bytes()]

    def apply() -> int | None:
        if not newest:
            return None
        buffer = newest.pop()
        begin, values = 8, []
        for shape, dtype in specs:
            value = np.frombuffer(buffer, dtype, math.prod(shape), begin).reshape(shape)
            values.append(tf.constant(value))
            begin += value.nbytes
        assign(values)
        return int.from_bytes(buffer[:8], "little")

    return (_in_thread(receive_for_ever), _in_thread(functools.partial(held.hold, apply))), None


def _in_thread(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread
