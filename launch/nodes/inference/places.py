"""Places at a node that acts for others: what it keeps of the policy for each episode, or each actor, at a time."""

from collections.abc import Callable

import numpy as np

from ....agents.policies.acting import end_record, make_record
from ....agents.policies.batched_policy import InferenceRequest, InferenceResult
from ....data import Nest, Timestep, Version
from ..acting.actor_writer import ActorWriter


class Place:
    """One slot of the policy, or all those of an actor, in which episodes follow each other.

    Args:
      index: its slot, or the index of the actor.
      state: the policy's initial state, `[slots, ...]`.
      seed: together with the number of the timestep, seeds every action.
      slots: number of slots, as many for every index.
    """

    def __init__(self, index: int, state: Nest, seed: int, slots: int = 1):
        self.index = index
        self._slots = np.arange(index * slots, (index + 1) * slots, dtype=np.int32)
        self._state = state
        self._seed = seed
        self._number = -1
        self._timestep: Timestep | None = None
        self._acted: tuple[InferenceResult, Version] | None = None

    def observe(self, timestep: Timestep) -> None:
        """Takes the next timestep; if the one before was not acted on, this one must be `first`."""
        if self._acted is not None:
            self._state = self._acted[0].state
        self._number, self._timestep, self._acted = self._number + 1, timestep, None

    def may_act(self, version: Version) -> bool:
        """Returns whether the policy may act with weights of this version."""
        return True

    def request(self) -> InferenceRequest:
        """Returns the policy's inputs for the newest timestep."""
        assert self._timestep is not None
        return InferenceRequest(
            self._timestep, self._state, self._slots, np.array([self._seed, self._number % 2**31], np.int32)
        )

    def act(self, result: InferenceResult, version: Version) -> None:
        """Takes the policy's outputs for the newest timestep."""
        self._acted = result, version

    def rest(self) -> None:
        """Takes notice that no episode is in the place: the next timestep may come much later."""

    def close(self) -> None:
        """Releases what the place holds."""


class RecordedPlace(Place):
    """A place whose timesteps are learned from.

    The other arguments are those of `Place`.

    Args:
      writer: writes to replay for this place alone.
    """

    def __init__(self, index: int, state: Nest, seed: int, writer: ActorWriter, slots: int = 1):
        super().__init__(index, state, seed, slots)
        self.writer = writer

    def observe(self, timestep: Timestep) -> None:
        before, state, acted = self._timestep, self._state, self._acted
        super().observe(timestep)
        if before is None or acted is None:
            return
        result, version = acted
        record = make_record(before, result.action, result.extras, version, timestep)
        self.writer.append(record, state)
        if self.writer.count_timestep():
            self.writer.append(end_record(record, timestep), self._state)

    def may_act(self, version: Version) -> bool:
        return self.writer.caught_up(0.0) and self.writer.may_act(version)

    def rest(self) -> None:
        self.writer.rest()

    def close(self) -> None:
        self.writer.close()


class PlacePool:
    """The places of a policy server, which are made when they are first needed.

    Args:
      make_place: makes the place with an index.
      size: the most places.
      rotates: whether the place that has been free for longest is taken next, rather than the first one.
    """

    def __init__(self, make_place: Callable[[int], Place], size: int, rotates: bool = False):
        self._make_place = make_place
        self.size = size
        self._rotates = rotates
        self._made: list[Place] = []
        self._free: list[Place] = []

    def take(self) -> Place | None:
        """Returns a place for an episode; None if all are taken."""
        if len(self._made) < self.size and (self._rotates or not self._free):
            self._made.append(self._make_place(len(self._made)))
            return self._made[-1]
        if not self._free:
            return None
        place = self._free[0] if self._rotates else min(self._free, key=lambda free: free.index)
        self._free.remove(place)
        return place

    def give_back(self, place: Place) -> None:
        """Takes back a place whose episode has ended."""
        place.rest()
        self._free.append(place)

    def close(self) -> None:
        for place in self._made:
            place.close()
