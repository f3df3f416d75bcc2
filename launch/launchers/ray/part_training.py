"""Learning in a Ray task: the work of the learner node, with weights and replay in Ray actors."""

import contextlib
import math
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import ray
import tensorflow as tf

from ....agents.finite_checks import LossCheck, NotFiniteError
from ....agents.registry import agent_name
from ....agents.weights import Unpacking, pack_weights
from ....data import Priorities, Update, Version
from ....errors import CallboardError
from ....replay import BatchReader, Heartbeat, PriorityUpdater, ReaderStopped, ReplayDataset
from ...nodes.devices import device_names, make_strategy
from ...nodes.learner_input import distributed_batches
from ...ports import RAY_PORTS, reserve_among
from .part_clients import (
    CALL_SECONDS,
    REPORT_SECONDS,
    UNREACHABLE,
    Parts,
    Repeated,
    address_here,
    first_answer,
    replay_handle,
)

_PUBLISH_SECONDS = 0.05
_POLL_SECONDS = 0.05
_PEER_SECONDS = 5.0
_MEETING_SECONDS = 300.0


class StoppedBeforehand(Exception):
    """Raised if a learner is stopped while it waits for the others."""


class Training:
    """One learner, until it is stopped.

    Args:
      parts: the servers.
      rank: rank of the learner.

    Raises:
      StoppedBeforehand: all tasks were stopped before all learners had registered.
      CallboardError: not all learners registered within five minutes, or a loss, a gradient or a weight is not finite.
    """

    def __init__(self, parts: Parts, rank: int):
        experiment, agent = parts.experiment, parts.experiment.agent
        self._parts = parts
        self._rank = rank
        self._ended = threading.Event()
        self._steps = 0
        self._update: Update | None = None
        self._losses = LossCheck()
        self._dataset: ReplayDataset | None = None
        self._reader: BatchReader | None = None
        self._priorities: PriorityUpdater | None = None
        self._told_to_stop = Repeated(self._report, first=False, every=REPORT_SECONDS)
        self._published = Repeated(self._publish, first=None, every=_PUBLISH_SECONDS)
        with _meeting(parts, rank) as workers:
            self._strategy = make_strategy(device_names(experiment.learner_devices), workers, rank)
        tf.keras.utils.set_random_seed(experiment.seed)
        with self._strategy.scope():
            networks = agent.make_networks(parts.layout)
            self._variables = agent.make_policy(networks, "train").variables
            self._parts_of_weights = Unpacking(self._variables)
            if rank == 0:
                self._incarnation = first_answer(parts.weights.begin.remote, "the ParameterServer")
                # Publish the weights first, because actors wait for them.
                self._published.newest()
            self._learner = agent.make_learner(networks, self._strategy, parts.layout)
        self._replay = replay_handle(parts.replay)

    def run(self, steps: int | None) -> int:
        """Make `steps` learner steps, or a few more if the agent's last call makes several; None runs until stopped.

        Returns:
          The number of steps made.
        """
        Heartbeat(self._replay, self._ended)
        self._reader = reader = BatchReader(self._make_batches, self._stopped, self._replay_life)
        if self._rank == 0:
            threading.Thread(target=self._report_for_ever, name="reports", daemon=True).start()
        try:
            while (steps is None or self._steps < steps) and not self._stopped():
                self._learn(reader)
        except ReaderStopped:
            pass
        finally:
            self._ended.set()
            reader.close()
            if self._priorities is not None:
                self._priorities.close()
        if self._rank == 0:
            with contextlib.suppress(*UNREACHABLE):
                ray.get([self._publish(), self._report()], timeout=CALL_SECONDS)
        return self._steps

    def _learn(self, reader: BatchReader) -> None:
        self._update = update = self._learner.step(reader)
        self._steps += update.steps
        self._losses.add(self._steps, update)
        if update.priorities is not None:
            self._send_priorities(update.priorities)

    def _make_batches(self) -> Any:
        agent, layout = self._parts.experiment.agent, self._parts.layout
        return distributed_batches(agent, self._replay, layout, self._strategy, self._take_dataset)

    def _take_dataset(self, dataset: ReplayDataset) -> None:
        self._dataset = dataset

    def _send_priorities(self, priorities: Priorities) -> None:
        if self._priorities is None:
            assert self._dataset is not None
            self._priorities = PriorityUpdater(self._replay, self._dataset.table)
        self._priorities.submit(priorities)

    def _replay_life(self) -> object:
        # A dataset over several shards reconnects to each of them itself.
        return self._replay.incarnation(0) if self._parts.layout.shards == 1 else None

    def _stopped(self) -> bool:
        """Return whether the learner must stop; called between two steps, and while it waits for a batch."""
        if self._rank > 0:
            return False
        # Publish also while waiting for a batch: a restarted server has no weights, and without weights no actor can
        # act.
        self._published.newest()
        return self._told_to_stop.newest()

    def _report_for_ever(self) -> None:
        """Report also during a long step, such as the first one, because a silent learner counts as dead."""
        while not self._ended.wait(REPORT_SECONDS):
            self._told_to_stop.newest()

    def _publish(self) -> "ray.ObjectRef[Any]":
        version = Version(self._incarnation, self._steps)
        packed = pack_weights(variable.numpy() for variable in self._variables)
        try:
            self._losses.check()
            self._parts_of_weights.check_finite(packed)
        except NotFiniteError as error:
            raise error.advised(agent_name(self._parts.experiment.agent), self._steps) from error
        return self._parts.weights.publish.remote(tuple(version), packed)

    def _report(self) -> "ray.ObjectRef[Any]":
        metrics = {} if self._update is None else {name: float(value) for name, value in self._update.metrics.items()}
        waited = 0.0 if self._reader is None else self._reader.seconds_waited
        return self._parts.progress.report_learner.remote(self._steps, metrics, waited)


def train_beside_the_first(parts: Parts, rank: int) -> int:
    """Take part in the first learner's steps until the first learner has ended."""
    done: Future[int] = Future()

    def learn() -> None:
        try:
            done.set_result(Training(parts, rank).run(None))
        except StoppedBeforehand:
            done.set_result(0)
        except BaseException as error:
            done.set_exception(error)

    # A step never ends after the first learner has left it, so the thread is left behind.
    threading.Thread(target=learn, name="learner", daemon=True).start()
    over = Repeated(parts.progress.learning_has_ended.remote, first=False, every=REPORT_SECONDS)
    broken_since = math.inf
    while not over.newest():
        if done.done():
            # When the first learner ends, the step fails in the others, possibly before the end has been reported.
            broken_since = min(broken_since, time.monotonic())
            if time.monotonic() - broken_since > _PEER_SECONDS:
                return done.result()
        time.sleep(_POLL_SECONDS)
    return 0


@contextlib.contextmanager
def _meeting(parts: Parts, rank: int) -> Iterator[list[str]]:
    """Wait for the other learners and yield the addresses of all; empty if there is only one learner."""
    learners = parts.experiment.learners
    if learners == 1:
        yield []
        return
    port = reserve_among(RAY_PORTS)
    identity, own, addresses = uuid.uuid4().hex, address_here(port.port), None
    deadline = time.monotonic() + _MEETING_SECONDS
    try:
        while addresses is None:
            addresses = first_answer(lambda: parts.progress.meet.remote(rank, identity, own, learners), "Progress")
            if addresses is None and first_answer(parts.progress.totals.remote, "Progress").stopping:
                raise StoppedBeforehand
            if addresses is None and time.monotonic() > deadline:
                raise CallboardError(
                    f"not all of {learners} learners have come within {_MEETING_SECONDS:.0f} s: start `train` for each "
                    "rank, and see by `ray status` whether one waits for resources"
                )
            time.sleep(_POLL_SECONDS)
        yield addresses
    finally:
        port.release()
