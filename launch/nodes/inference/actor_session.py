"""One incarnation of an actor at an inference node, with the number of its newest timestep."""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

import numpy as np
import tree

from ....agents.policies.batched_policy import InferenceRequest, InferenceResult
from ....data import Timestep, Version
from .places import RecordedPlace

PendingResult = Future[tuple[InferenceResult, Version]]
"""The result of a request, and the version of the weights that computed it."""


class ActorSession:
    """One incarnation of an actor, from its first timestep to the newest.

    Timesteps are numbered: one that arrives again is recorded once and gets the same action.

    Args:
      incarnation_id: id of the incarnation.
      place: belongs to this incarnation alone, so that no sequence spans two incarnations.
    """

    def __init__(self, incarnation_id: str, place: RecordedPlace):
        self.incarnation_id = incarnation_id
        self.writer = place.writer
        self._place = place
        self._number = -1
        self._pending: PendingResult | None = None
        self._has_acted = False

    def observe(self, number: int, timestep: Timestep) -> bool:
        """Takes the next timestep and writes the record of the previous one; returns False if it is not the next."""
        if number == self._number:
            return True
        if number != self._number + 1 or (number > 0 and not self._has_acted):
            return False
        self._place.observe(timestep)
        self._number, self._pending, self._has_acted = number, None, False
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
            self._pending = infer(self._place.request())
        try:
            result, version = self._pending.result(timeout)
        except FutureTimeoutError:
            return None
        self._place.act(result, version)
        self._has_acted = True
        return tree.flatten(result.action)
