"""Writes one actor's records to replay, and makes the actor wait if replay or the pacing requires it."""

import threading
import time
from collections.abc import Callable
from typing import Any

from ....agents import Agent
from ....data import Layout, Nest, Record, Version
from ....replay import Pace, ReplayHandle, SequenceWriter, Writer, checked_writer
from ..reports.reporting import KnownLearners
from .pacing import Pacer

_READY_SECONDS = 0.5


class ActorWriter:
    """The agent's replay writer for one actor, recreated when the server of the actor's shard is replaced.

    Before each environment step first `caught_up` and then `may_act` must return True.  After the step comes `append`,
    and then `count_timestep`, which returns whether the sequence ends with this record.

    Args:
      agent: the agent.
      layout: layout of the run, including its record and state.
      index: index of the actor.
      replay: the replay shards to write to.
      learners: the learners of the policy, as far as they are known.  Once they have finished, no newer weights follow,
        and nothing takes data from replay: the actor waits for neither, and writes nothing.
      networks: the networks that act, see `Agent.make_writer`.
      make_pacer: makes what decides when the actor with an index may begin a sequence, for agents with a pace.
    """

    def __init__(
        self,
        agent: Agent,
        layout: Layout,
        index: int,
        replay: ReplayHandle,
        learners: KnownLearners,
        networks: Any,
        make_pacer: Callable[[Pace, int], Pacer] = Pacer,
    ):
        self._agent = agent
        self._layout = layout
        self._index = index
        self._replay = replay
        self._shard = layout.shard_of(index)
        self._learner = layout.learner_of(index)
        self._learners = learners
        self._networks = networks
        self._make_pacer = make_pacer
        self._writes = True
        self.seconds_waited = 0.0
        """Seconds for which `caught_up` has waited for replay to accept data."""
        self._begin()

    @property
    def items_written(self) -> int:
        """Number of items written to replay."""
        return self._writer.items_written

    def append(self, record: Record, state: Nest) -> None:
        """Adds one timestep and the recurrent state before it.  Never blocks."""
        if self._writes:
            self._writer.append(record, state)

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """See `replay.Writer`."""
        return self._writer.ready(timeout, max_pending)

    def close(self) -> None:
        self._writer.close()

    def caught_up(self, timeout: float = _READY_SECONDS) -> bool:
        """Waits up to `timeout` seconds for replay to accept earlier data; returns False if not, or it was replaced."""
        # For good: a coordinator that restarts forgets it for a moment.
        self._writes = self._writes and not self._learners.have_finished
        if not self._writes:
            return True
        # A complete sequence must not sit in the writer while the next timestep waits for the learner.
        complete = self._pacer is not None and self._pacer.between_sequences
        begun = time.monotonic()
        ready = self.ready(timeout, max_pending=0 if complete else None)
        self.seconds_waited += time.monotonic() - begun
        if self._replay.incarnation(self._shard) == self._incarnation:
            return ready
        # Unconfirmed data of the old writer is lost with the old server; the new writer begins a new sequence.
        self.close()
        self._begin()
        return False

    def take_waited_for_room(self) -> bool:
        """Returns whether the newest sequence had to wait for room in a queue, see `QueueRoom`; once."""
        return isinstance(self._writer, SequenceWriter) and self._writer.take_waited_for_room()

    def may_act(self, version: Version) -> bool:
        """Returns whether the actor may act with weights of this version; if True, a sequence has begun."""
        pacer = self._pacer
        if pacer is None or not pacer.waits_to_begin or not self._writes:
            return True
        if not (pacer.may_begin(version) or pacer.may_help(self._learners.short_of_data(self._learner))):
            return False
        pacer.begin()
        return True

    def count_timestep(self) -> bool:
        """Counts a record; returns True if an observation without an action must follow, to end the sequence."""
        return self._pacer is not None and self._pacer.count_timestep()

    def rest(self) -> None:
        """Lets the pacer know that the next timestep may come much later, also in the middle of a sequence."""
        if self._pacer is not None:
            self._pacer.rest()

    def send_remaining(self) -> None:
        """Sends what the writer has kept for a larger message: no timestep follows for a while.  Never blocks."""
        if self._writes:
            self.ready(0.0, max_pending=0)

    def flush(self, stop: threading.Event) -> None:
        """Waits until no items are pending, or until `stop` is set."""
        while self._writes and not self.ready(_READY_SECONDS, max_pending=0) and not stop.is_set():
            pass

    def _begin(self) -> None:
        self._incarnation = self._replay.incarnation(self._shard)
        pace = self._agent.make_replay(self._layout).pace
        self._pacer = None if pace is None else self._make_pacer(pace, self._index)
        writer = self._agent.make_writer(self._replay, self._layout, self._index, self._networks)
        self._writer: Writer = checked_writer(writer)
