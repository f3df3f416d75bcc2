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
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import numpy as np
import tree

from ...agents.acting import end_record, make_record, trace_layout
from ...agents.batched_policy import BatchedPolicy, Move, Turn
from ...agents.weights import WeightClient
from ...data import Nest, Timestep, Version
from ...replay import Heartbeat
from ..experiment import Run
from .actor import HOLD_SECONDS, ask_for_shortage, fetch_in_background, wait_for_weights
from .actor_writer import ActorWriter
from .devices import prepare_devices
from .node import NodeContext, NodeHandle
from .reporting import Report, ReportingNode
from .request_batcher import RequestBatcher
from .timestep_codec import TimestepCodec

_CALL_SECONDS = 5.0
_DEADLINE_SECONDS = 0.005
_ANSWER_SECONDS = 1.0
"""Time after which an actor has to repeat its call: calls must be short so that the run can end quickly."""

Answer = tuple[bool, list[np.ndarray] | None]


class InferenceNode(ReportingNode):
    """Acts for the actors `rank`, `rank + inference_nodes`, ..."""

    served = ("act",)

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
        experiment = run.experiment
        self._experiment = experiment
        self._layout = run.layout
        self._rank = rank
        self._learner = learner
        self._seats = {index: _Seat() for index in range(rank, experiment.actors, experiment.inference_nodes)}
        self._shards = sorted({run.layout.shard_of(index) for index in self._seats})
        self._shard_names = [replay[shard].name for shard in self._shards]
        self._replay_handle = self.replay_handle(replay)
        self._timesteps = TimestepCodec(run.layout)
        # With one thread for all nodes, the actors that a batch would wait for cannot call at the same time.
        self._batcher = RequestBatcher(0.0 if context.cooperative else _DEADLINE_SECONDS)
        self._set_up = threading.Event()
        self._failure: Exception | None = None
        self._batches = 0
        self._turns = 0

    def act(self, actor: int, life: str, seed: int, number: int, timestep: bytes) -> Answer:
        """Takes an actor's timestep and returns the leaves of the action that follows it.

        A call may arrive twice: its timestep is recorded once.

        Args:
          actor: index of the actor.
          life: id of the actor's incarnation.
          seed: together with the number of the timestep, seeds every action of that incarnation.
          number: number of the timestep in that incarnation, from 0 on.
          timestep: packed by `TimestepCodec`.

        Returns:
          Whether this node knows the incarnation: if not, the actor must begin a new one, since the recurrent state for
          its observations is lost.  And the action, or None if the actor must repeat the call.
        """
        if not self._set_up.wait(_ANSWER_SECONDS):
            return True, None
        seat = self._seats[actor]
        if not seat.lock.acquire(timeout=_ANSWER_SECONDS):
            return True, None
        try:
            if not self._observe(actor, life, seed, number, timestep):
                return False, None
            assert seat.life is not None
            return True, self._answer(actor, seat.life)
        except Exception as error:
            # The actor only sees a failed call, so the error is raised in this node's main loop.
            self._failure = error
            raise
        finally:
            seat.lock.release()

    def observe(self, actor: int, life: str, seed: int, number: int, timestep: bytes) -> bool:
        """Takes a timestep as `act` does, but computes no action yet; for nodes that share a thread."""
        return self._observe(actor, life, seed, number, timestep)

    def items_written(self, actor: int) -> int:
        """Returns the number of items written to replay for an actor's current incarnation."""
        life = self._seats[actor].life
        return life.writer.items_written if life else 0

    def setup(self) -> None:
        prepare_devices(["CPU:0"])  # Also makes GPU memory grow on demand: the learner may use the same GPU.
        agent = self._experiment.agent
        networks = agent.make_networks(self._layout)
        policy = agent.make_policy(networks, "train")
        self._layout = trace_layout(agent, self._layout, networks)
        self._policy = BatchedPolicy(policy, self._layout)
        self._weights = WeightClient(self._learner.client(_CALL_SECONDS), policy.variables)
        self.begin_reports()
        if not wait_for_weights(self._weights, self._learner, self.context):
            return
        if not self.link.wait_for(*self._shard_names):
            return
        if not self.context.cooperative:
            Heartbeat(self._replay_handle, self.context.stop, self._shards)
            fetch_in_background(self._weights, self._learner, self._experiment.inference_nodes, self.context.stop)
        self._set_up.set()
        logging.info("ready to act for actors %s", ", ".join(map(str, self._seats)))

    def step(self) -> None:
        """Processes one batch of requests, if there are any."""
        progress = self.context.progress
        progress.works("serving")
        waiting = self._batcher.take(HOLD_SECONDS)
        # Also when no requests arrive: actors may be waiting for newer weights.
        self._weights.apply()
        if waiting:
            # Each new batch size is compiled.
            progress.works_slowly("in forward pass")
            version = self._version()
            moves = self._policy([one.request for one in waiting])
            for one, move in zip(waiting, moves, strict=True):
                one.result.set_result((move, version))
            self._batches += 1
            self._turns += len(waiting)
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        self.link.close()

    def collect(self) -> Report:
        batches, self._batches = self._batches, 0
        turns, self._turns = self._turns, 0
        if not batches:
            return Report()
        return Report(values={f"inference/actors_per_batch_{self._rank}": turns / batches})

    def _version(self) -> Version:
        """Returns the version of the current weights; if nodes share a thread, fetches the newest first."""
        if self.context.cooperative:
            self._weights.fetch()
            self._weights.apply()
        assert self._weights.version is not None
        return self._weights.version

    def _observe(self, actor: int, identity: str, seed: int, number: int, timestep: bytes) -> bool:
        seat = self._seats[actor]
        if seat.life is None or seat.life.identity != identity:
            if number != 0:
                return False
            if seat.life is not None:
                seat.life.writer.close()
            seat.life = self._begin(actor, identity, seed)
        known = seat.life.observe(number, self._timesteps.unpack(timestep))
        if self.context.cooperative:
            seat.life.writer.settle(self.context.stop)
        return known

    def _begin(self, actor: int, identity: str, seed: int) -> "_ActorLife":
        logging.info("actor %d begins", actor)
        agent, batch = self._experiment.agent, self._experiment.envs_per_actor
        ask = ask_for_shortage(self._learner, self.context)
        writer = ActorWriter(agent, self._layout, actor, self._replay_handle, ask)
        return _ActorLife(
            identity,
            writer,
            state=self._policy.initial_state(batch),
            slots=np.arange(actor * batch, (actor + 1) * batch, dtype=np.int32),
            seed=seed,
        )

    def _answer(self, actor: int, life: "_ActorLife") -> list[np.ndarray] | None:
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not life.may_act(self._version()):
            self._batcher.forget(actor)
            if self.context.cooperative or time.monotonic() > deadline or self.context.stop.wait(HOLD_SECONDS):
                return None
        return life.act(functools.partial(self._play, actor))

    def _play(self, actor: int, turn: Turn) -> "Future[tuple[Move, Version]]":
        """Submits a request to the next batch.  If nodes share a thread it runs at once, as a batch of one."""
        result = self._batcher.submit(actor, turn)
        if self.context.cooperative:
            self.step()
        return result


@dataclasses.dataclass
class _Seat:
    """What the node keeps for each actor, over all its incarnations."""

    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    """Held during a call: one call of an actor at a time."""
    life: "_ActorLife | None" = None


class _ActorLife:
    """The state of one incarnation of an actor, from its first timestep to the newest.

    Args:
      identity: id of the incarnation.
      writer: belongs to this incarnation alone, so that no sequence spans two incarnations.
      state: the initial recurrent state.
      slots: slots of the environments.
      seed: together with the number of the timestep, seeds every action.
    """

    def __init__(self, identity: str, writer: ActorWriter, state: Nest, slots: np.ndarray, seed: int):
        self.identity = identity
        self.writer = writer
        self._state = state
        self._slots = slots
        self._seed = seed
        self._number = -1
        self._timestep: Any = None
        self._result: Future[tuple[Move, Version]] | None = None
        self._acted: tuple[Move, Version] | None = None

    def observe(self, number: int, timestep: Timestep) -> bool:
        """Takes the next timestep and writes the record of the previous one; returns False if it is not the next."""
        if number == self._number:
            return True
        if number != self._number + 1 or (number > 0 and self._acted is None):
            return False
        if self._acted is not None:
            move, version = self._acted
            record = make_record(self._timestep, move.action, move.extras, version, timestep)
            self.writer.append(record, self._state)
            self._state = move.state
            if self.writer.timestep():
                self.writer.append(end_record(record, timestep), self._state)
        self._number, self._timestep = number, timestep
        self._result = self._acted = None
        return True

    def may_act(self, version: Version) -> bool:
        """Returns whether the actor may act; waits briefly for replay."""
        return self._result is not None or (self.writer.caught_up() and self.writer.may_act(version))

    def act(self, play: Callable[[Turn], "Future[tuple[Move, Version]]"]) -> list[np.ndarray] | None:
        """Returns the leaves of the action that follows the newest timestep; None if it takes too long."""
        if self._result is None:
            seed = np.array([self._seed, self._number], np.int32)
            self._result = play(Turn(self._timestep, self._state, self._slots, seed))
        try:
            self._acted = self._result.result(_ANSWER_SECONDS)
        except FutureTimeoutError:
            return None
        return tree.flatten(self._acted[0].action)
