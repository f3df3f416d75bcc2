"""The inference node: acts for actors that hold no network (SEED, Espeholt et al. 2020, arXiv:1910.06591).

Actors send their timesteps and receive actions.  One forward pass serves all actors whose requests arrive at about the
same time.  Recurrent states stay on this node, and this node writes the trajectories to replay.
"""

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ....agents.agent import Agent
from ....agents.policies.acting import trace_layout
from ....agents.policies.batched_policy import BatchedPolicy, InferenceRequest, InferenceResult
from ....agents.variables.weights import WeightClient
from ....data import Layout, Version
from ....errors import anything_raised
from ....replay import Heartbeat, Pace
from ....runtime.deadlines import Deadline
from ...experiments.checked_run import Run
from ...processes.devices import GpuUse, describe_devices, prepare_devices
from ..acting.actor_writer import ActorWriter
from ..acting.environment_node import POLL_SECONDS
from ..acting.pacing import Pacer
from ..acting.timestep_codec import TimestepCodec
from ..acting.weight_fetching import CALL_SECONDS, WeightServer, fetch_in_background, wait_for_weights
from ..acting.weight_relay import RelayedLearner
from ..node import NodeContext, NodeHandle
from ..reports.messages import Report
from ..reports.reporting import ReportingNode
from .actor_session import ActorSession, PendingResult
from .places import RecordedPlace
from .request_batcher import RequestBatcher

_DEADLINE_SECONDS = 0.005
_ANSWER_SECONDS = 1.0
"""Time after which an actor has to repeat its call: calls must be short so that the run can end quickly."""

Answer = tuple[bool, list[np.ndarray] | None]


@dataclasses.dataclass
class _ServedActor:
    """State of an actor at the node, over all incarnations of the actor."""

    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    """Held during a call: one call of an actor at a time."""
    session: ActorSession | None = None
    seconds_waited: float = 0.0
    """Seconds for which replay or the agent's pacing has kept the actor from acting."""


class InferenceNode(ReportingNode):
    """Acts for the actors `rank`, `rank + inference_nodes`, ...; `prepare_inference` builds what acts."""

    achieves_by_steps = False
    served: ClassVar[tuple[str, ...]] = ("act",)

    def __init__(
        self,
        context: NodeContext,
        run: Run,
        rank: int,
        coordinator: NodeHandle,
        learner: NodeHandle,
        replay: Sequence[NodeHandle],
    ):
        super().__init__(context, coordinator)
        self._run = run
        self._layout = run.layout
        self._rank = rank
        self._learner = RelayedLearner(learner, run.start, run.placement.inference_nodes, context)
        indices = range(rank, run.placement.actors, run.placement.inference_nodes)
        self._actors = {index: _ServedActor() for index in indices}
        self._shards = sorted({run.layout.shard_of(index) for index in self._actors})
        self._shard_names = [replay[shard].name for shard in self._shards]
        self._replay_handle = self.reporter.replay_handle(replay)
        self._timesteps = TimestepCodec(run.layout)
        self._batcher = RequestBatcher(_DEADLINE_SECONDS)
        self._set_up = threading.Event()
        self._failure: BaseException | None = None
        self._batches = 0
        self._requests = 0

    def act(self, actor: int, incarnation_id: str, seed: int, number: int, timestep: bytes) -> Answer:
        """Takes an actor's timestep and returns the leaves of the action that follows it.

        A call may arrive twice: its timestep is recorded once.

        Args:
          actor: index of the actor.
          incarnation_id: id of the actor's incarnation.
          seed: together with the number of the timestep, seeds every action of that incarnation.
          number: number of the timestep in that incarnation, from 0 on.
          timestep: packed by `TimestepCodec`.

        Returns:
          Whether this node knows the incarnation: if not, the actor must begin a new one, since the recurrent state for
          its observations is lost.  And the action, or None if the actor must repeat the call.
        """
        if not self._set_up.wait(_ANSWER_SECONDS):
            return True, None
        lock = self._actors[actor].lock
        if not lock.acquire(timeout=_ANSWER_SECONDS):
            return True, None
        try:
            session = self._observe(actor, incarnation_id, seed, number, timestep)
            return (False, None) if session is None else (True, self._action(actor, session))
        except anything_raised() as error:
            # The actor only sees a failed call, so the error is raised in this node's main loop.
            self._failure = error
            raise
        finally:
            lock.release()

    def observe(self, actor: int, incarnation_id: str, seed: int, number: int, timestep: bytes) -> None:
        """Takes a timestep as `act` does, but computes no action yet; for nodes that share a thread."""
        self._observe(actor, incarnation_id, seed, number, timestep)

    def items_written(self, actor: int) -> int:
        """Returns the number of items written to replay for an actor's current incarnation."""
        session = self._actors[actor].session
        return session.writer.items_written if session else 0

    def setup(self) -> None:
        self._networks, self._policy, self._layout, self._weights = prepare_inference(
            self._run.agent, self._layout, self._learner, self._run.placement.gpu_use
        )
        where = "" if self.context.one_process else describe_devices()
        if where:
            self.context.notify(where)
        self.begin_reports()
        if not wait_for_weights(self._weights, self._learner, self.context):
            return
        if not self.reporter.wait_for(*self._shard_names):
            return
        if not self.context.cooperative:
            Heartbeat(self._replay_handle, self.context.stop, self._shards)
            fetch_in_background(self._weights, self._learner, lambda: self._learner.pause, self.context)
        self._set_up.set()
        logging.info("ready to act for actors %s", ", ".join(map(str, self._actors)))

    def step(self) -> None:
        """Computes the results of one batch of requests, if there are any."""
        self.context.progress.works("serving")
        batch = self._batcher.next_batch(POLL_SECONDS)
        # Also when no requests arrive: actors may be waiting for newer weights.
        self._weights.apply()
        if batch:
            results = self._infer_batch([pending.request for pending in batch])
            for pending, result in zip(batch, results, strict=True):
                pending.result.set_result(result)
        elif self.reporter.state.stopping:
            self._send_remaining()
        if self._failure is not None:
            raise self._failure

    def seconds_waited(self) -> dict[str, float]:
        waited = sum(actor.seconds_waited for actor in self._actors.values())
        return {"replay to take data": waited / len(self._actors)}

    def weights_step(self) -> int | None:
        version = self._weights.version if self._set_up.is_set() else None
        return None if version is None else version.step

    def finish(self) -> None:
        self.reporter.close()

    def collect(self) -> Report:
        batches, self._batches = self._batches, 0
        requests, self._requests = self._requests, 0
        if not batches:
            return Report()
        return Report(values={f"inference/actors_per_batch_{self._rank}": requests / batches})

    def _observe(self, actor: int, incarnation_id: str, seed: int, number: int, timestep: bytes) -> ActorSession | None:
        """Passes a timestep to the session of the incarnation; returns None if its earlier timesteps are not known."""
        served = self._actors[actor]
        if served.session is None or served.session.incarnation_id != incarnation_id:
            if number != 0:
                return None
            if served.session is not None:
                served.session.writer.close()
            served.session = self._begin_session(actor, incarnation_id, seed)
        if not served.session.observe(number, self._timesteps.unpack(timestep)):
            return None
        if self.context.cooperative:
            served.session.writer.flush(self.context.stop)
        return served.session

    def _send_remaining(self) -> None:
        for served in self._actors.values():
            if served.lock.acquire(blocking=False):
                try:
                    if served.session is not None:
                        served.session.writer.send_remaining()
                finally:
                    served.lock.release()

    def _begin_session(self, actor: int, incarnation_id: str, seed: int) -> ActorSession:
        logging.info("actor %d begins", actor)
        return ActorSession(incarnation_id, self._make_place(actor, seed, self._run.placement.envs_per_actor))

    def _make_place(
        self, index: int, seed: int, slots: int, make_pacer: Callable[[Pace, int], Pacer] = Pacer
    ) -> RecordedPlace:
        """Returns a place of the policy with this number of slots, whose timesteps go to replay."""
        learners = self.reporter.learners_of()
        writer = ActorWriter(
            self._run.agent, self._layout, index, self._replay_handle, learners, self._networks, make_pacer
        )
        return RecordedPlace(index, self._policy.initial_state(slots), seed, writer, slots)

    def _action(self, actor: int, session: ActorSession) -> list[np.ndarray] | None:
        """Returns the leaves of the next action; None if it takes too long."""
        deadline = Deadline(_ANSWER_SECONDS)
        begun = time.monotonic()
        try:
            while not session.may_act(self._newest_version()):
                self._batcher.forget(actor)
                if self.context.cooperative or deadline.has_passed or self.context.stop.wait(POLL_SECONDS):
                    return None
        finally:
            self._actors[actor].seconds_waited += time.monotonic() - begun
        return session.act(functools.partial(self._infer, actor), _ANSWER_SECONDS)

    def _infer(self, actor: int, request: InferenceRequest) -> PendingResult:
        """Submits a request to the next batch.  If nodes share a thread, no other request can join: it runs at once."""
        if not self.context.cooperative:
            return self._batcher.submit(actor, request)
        done: PendingResult = Future()
        done.set_result(self._infer_batch([request])[0])
        return done

    def _infer_batch(self, requests: Sequence[InferenceRequest]) -> list[tuple[InferenceResult, Version]]:
        # Each new batch size is compiled.
        self.context.progress.works_slowly("in forward pass")
        version = self._newest_version()
        results = self._policy(requests)
        self.context.progress.achieves()
        self._batches += 1
        self._requests += len(requests)
        return [(result, version) for result in results]

    def _newest_version(self) -> Version:
        """Returns the version of the current weights; if nodes share a thread, fetches the newest first."""
        if self.context.cooperative:
            self._weights.fetch()
            self._weights.apply()
        assert self._weights.version is not None
        return self._weights.version


class PreparedInference(NamedTuple):
    """The networks and the policy of an inference node, with the layout of the run."""

    networks: Any
    """The agent's networks, which the writers of the actors may need."""
    policy: BatchedPolicy
    """Acts for the batches of several actors at once."""
    layout: Layout
    """The layout of the run, with the record that replay contains."""
    weights: WeightClient
    """Fetches the weights of those networks."""


def prepare_inference(agent: Agent, layout: Layout, learner: WeightServer, use: GpuUse) -> PreparedInference:
    """Builds what acts in an inference node; weights and connections to replay follow, and a writer for each actor.

    Args:
      agent: the agent.
      layout: the layout of the run.
      learner: handle of the learner.
      use: how this process uses a GPU, which the learner may use as well.
    """
    prepare_devices(["CPU:0"], use)
    networks = agent.make_networks(layout)
    policy = agent.make_policy(networks, "train")
    layout = trace_layout(agent, layout, networks)
    weights = WeightClient(learner.client(CALL_SECONDS), policy.variables)
    return PreparedInference(networks, BatchedPolicy(policy, layout), layout, weights)
