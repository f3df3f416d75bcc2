"""An actor's way into replay, and what holds the actor back."""

import time
from typing import Any

from ..agents import Agent
from ..agents.agent import Writer
from ..data import Layout, Nest, Record, Version
from ..replay import ReplayHandle
from .pacing import Pacer
from .role import NodeContext, RoleHandle, Unreachable

_READY_SECONDS = 0.5
_QUESTION_SECONDS = 1.0


class ActorWriter:
    """The agent's writer of one actor, made anew when another server takes the place of its shard's.

    Before each step of the environments `caught_up` and then `may_act` must be true; after it comes the record, and
    `tick` says whether the sequence ends with it.

    Args:
      context: of the node that writes.
      agent: the recipe.
      layout: of the run, with its record and state.
      index: of the actor.
      replay: where to write.
      learner: is asked whether it is short of data, where actors are held back.
    """

    def __init__(
        self,
        context: NodeContext,
        agent: Agent,
        layout: Layout,
        index: int,
        replay: ReplayHandle,
        learner: RoleHandle,
    ):
        self._context = context
        self._agent = agent
        self._layout = layout
        self._index = index
        self._replay = replay
        self._shard = layout.shard_of(index)
        self._learner = learner
        self._next_question = 0.0
        self._begin()

    @property
    def items_written(self) -> int:
        """Items that replay has been given."""
        return self._writer.items_written

    def append(self, record: Record, state: Nest) -> None:
        """Adds one tick, and the recurrent state that it began with.  Never blocks."""
        self._writer.append(record, state)

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """See `agents.agent.Writer`."""
        return self._writer.ready(timeout, max_pending)

    def close(self) -> None:
        self._writer.close()

    def caught_up(self) -> bool:
        """Waits a moment for replay to take what came before; False if it has not, or if a new server was found."""
        # A sequence that is complete shall not wait in the writer for ticks that wait for the learner.
        complete = self._pacer is not None and self._pacer.between_sequences
        ready = self.ready(_READY_SECONDS, max_pending=0 if complete else None)
        if self._replay.life(self._shard) == self._life:
            return ready
        # What the old writer had not got confirmed is gone with the old server; a new one begins a new sequence.
        self.close()
        self._begin()
        return False

    def may_act(self, version: Version) -> bool:
        """Whether the actor may act with weights of this version; once it may, a sequence has begun."""
        pacer = self._pacer
        if pacer is None or not pacer.between_sequences:
            return True
        if not self._may_begin(pacer, version):
            return False
        pacer.begin()
        return True

    def tick(self) -> bool:
        """Counts a record; True if the next observation must be written once without an action, to end a sequence."""
        return self._pacer is not None and self._pacer.tick()

    def settle(self) -> None:
        """Waits until nothing is on its way, where roles share a thread: what the others do when they take their turn
        would depend on the time."""
        while self._context.cooperative and not self.ready(_READY_SECONDS, max_pending=0):
            if self._context.stop.is_set():
                return

    def _begin(self) -> None:
        self._life = self._replay.life(self._shard)
        pace = self._agent.pace(self._layout)
        self._pacer = None if pace is None else Pacer(pace, self._index)
        self._writer: Writer = self._agent.make_writer(self._replay, self._layout, self._index)

    def _may_begin(self, pacer: Pacer, version: Version) -> bool:
        if pacer.may_begin(version):
            return True
        # In one thread nobody dies or is slow, and what is done may not depend on the time.
        if self._context.cooperative or pacer.seconds_waited < pacer.patience or time.monotonic() < self._next_question:
            return False
        self._next_question = time.monotonic() + _QUESTION_SECONDS
        try:
            learner: Any = self._learner.client(_QUESTION_SECONDS)
            return learner.seconds_short_of_data() >= pacer.patience
        except Unreachable:
            return False
