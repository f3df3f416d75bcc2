"""An actor's way into replay, what holds the actor back, and the timestep of one that acts by itself."""

import threading
import time
from collections.abc import Callable

from ...agents import Agent
from ...agents.acting import Actor, Episode
from ...agents.weights import WeightClient
from ...data import Layout, Nest, Record, Version
from ...replay import ReplayHandle, Writer
from .pacing import Pacer

_READY_SECONDS = 0.5
_QUESTION_SECONDS = 1.0


def act_once(
    actor: Actor,
    writer: "ActorWriter",
    weights: WeightClient,
    may_step: Callable[[], bool] = lambda: True,
    waits: Callable[[str], None] = lambda name: None,
) -> list[Episode] | None:
    """One timestep with the newest weights; gives the episodes that it ended, or None if the actor is held back.

    `may_step` is asked last: once it is true there is a timestep.  `waits` is given the name of what holds the actor
    back.
    """
    if not writer.caught_up():
        waits("replay to take data")
        return None
    weights.apply()
    assert weights.version is not None
    if not writer.may_act(weights.version):
        waits("newer weights")
        return None
    if not may_step():
        return None
    actor.version = weights.version
    episodes = actor.step()
    if writer.timestep():
        actor.end_sequence()
    return episodes


class ActorWriter:
    """The agent's writer of one actor, made anew when another server takes the place of its shard's.

    Before each step of the environments `caught_up` and then `may_act` must be true; after it comes the record, and
    `timestep` says whether the sequence ends with it.

    Args:
      agent: the recipe.
      layout: of the run, with its record and state.
      index: of the actor.
      replay: where to write.
      seconds_short_of_data: asks the learner for how long it has been waiting for data, 0 if it does not answer.  None
        where nobody dies or is slow, and what is done may not depend on the time: where roles share a thread.
    """

    def __init__(
        self,
        agent: Agent,
        layout: Layout,
        index: int,
        replay: ReplayHandle,
        seconds_short_of_data: Callable[[], float] | None,
    ):
        self._agent = agent
        self._layout = layout
        self._index = index
        self._replay = replay
        self._shard = layout.shard_of(index)
        self._seconds_short_of_data = seconds_short_of_data
        self._next_question = 0.0
        self._begin()

    @property
    def items_written(self) -> int:
        """Items that replay has been given."""
        return self._writer.items_written

    def append(self, record: Record, state: Nest) -> None:
        """Adds one timestep, and the recurrent state that it began with.  Never blocks."""
        self._writer.append(record, state)

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """See `replay.Writer`."""
        return self._writer.ready(timeout, max_pending)

    def close(self) -> None:
        self._writer.close()

    def caught_up(self) -> bool:
        """Waits a moment for replay to take what came before; False if it has not, or if a new server was found."""
        # A sequence that is complete shall not wait in the writer for timesteps that wait for the learner.
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
        if pacer is None or not pacer.waits_to_begin:
            return True
        if not self._may_begin(pacer, version):
            return False
        pacer.begin()
        return True

    def timestep(self) -> bool:
        """Counts a record; True if the next observation must be written once without an action, to end a sequence."""
        return self._pacer is not None and self._pacer.timestep()

    def settle(self, stop: threading.Event) -> None:
        """Waits until nothing is on its way, or `stop`."""
        while not self.ready(_READY_SECONDS, max_pending=0) and not stop.is_set():
            pass

    def _begin(self) -> None:
        self._life = self._replay.life(self._shard)
        replay = self._agent.make_replay(self._layout)
        self._pacer = None if replay.pace is None else Pacer(replay.pace, self._index)
        self._writer: Writer = replay.writer(self._replay, self._index)

    def _may_begin(self, pacer: Pacer, version: Version) -> bool:
        if pacer.may_begin(version):
            return True
        ask = self._seconds_short_of_data
        if ask is None or pacer.seconds_waited < pacer.patience or time.monotonic() < self._next_question:
            return False
        self._next_question = time.monotonic() + _QUESTION_SECONDS
        return ask() >= pacer.patience
