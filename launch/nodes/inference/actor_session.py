"""State of one incarnation of an actor at an inference node: its newest timestep, recurrent state and writer."""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import numpy as np
import tree

from ....agents.policies.acting import end_record, make_record
from ....agents.policies.batched_policy import InferenceRequest, InferenceResult
from ....data import Nest, Timestep, Version
from ..acting.actor_writer import ActorWriter

PendingResult = Future[tuple[InferenceResult, Version]]
"""The result of a request, and the version of the weights that computed it."""


class ActorSession:
    """One incarnation of an actor, from its first timestep to the newest.

    Timesteps are numbered: one that arrives again is recorded once and gets the same action.

    Args:
      incarnation_id: id of the incarnation.
      writer: belongs to this incarnation alone, so that no sequence spans two incarnations.
      state: the initial recurrent state.
      slots: slots of the environments.
      seed: together with the number of the timestep, seeds every action.
    """

    def __init__(self, incarnation_id: str, writer: ActorWriter, state: Nest, slots: np.ndarray, seed: int):
        self.incarnation_id = incarnation_id
        self.writer = writer
        self._state = state
        self._slots = slots
        self._seed = seed
        self._number = -1
        self._timestep: Any = None
        self._pending: PendingResult | None = None
        self._acted: tuple[InferenceResult, Version] | None = None

    def observe(self, number: int, timestep: Timestep) -> bool:
        """Takes the next timestep and writes the record of the previous one; returns False if it is not the next."""
        if number == self._number:
            return True
        if number != self._number + 1 or (number > 0 and self._acted is None):
            return False
        if self._acted is not None:
            result, version = self._acted
            record = make_record(self._timestep, result.action, result.extras, version, timestep)
            self.writer.append(record, self._state)
            self._state = result.state
            if self.writer.count_timestep():
                self.writer.append(end_record(record, timestep), self._state)
        self._number, self._timestep = number, timestep
        self._pending = self._acted = None
        return True

    def may_act(self, version: Version) -> bool:
        """Returns whether the actor may act with weights of this version; waits briefly for replay."""
        return self._pending is not None or (self.writer.caught_up() and self.writer.may_act(version))

    def act(self, infer: Callable[[InferenceRequest], PendingResult], timeout: float) -> list[np.ndarray] | None:
        """Returns the leaves of the action that follows the newest timestep.

        Args:
          infer: submits a request; called once for every timestep.
          timeout: seconds to wait for the result; after that None is returned, and a later call returns the action.
        """
        if self._pending is None:
            seed = np.array([self._seed, self._number], np.int32)
            self._pending = infer(InferenceRequest(self._timestep, self._state, self._slots, seed))
        try:
            self._acted = self._pending.result(timeout)
        except FutureTimeoutError:
            return None
        return tree.flatten(self._acted[0].action)
