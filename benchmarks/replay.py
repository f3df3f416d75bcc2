"""Items per second into and out of a Reverb server, through our writers and datasets, relative to Reverb by hand.

There is a server process, a writer process and a reader process.  A case either inserts into a table that always has
room or reads from a full table, so the two directions do not affect each other.

Two layouts are measured, with the same columns, chunks and items on both sides:

- *sequences*: IMPALA's blocks, one item of 20 transitions of 16 environments, read in batches of 32 sequences;
- *windows*: Ape-X's 3-step windows of single environments, one per timestep of each of 16 environments, with initial
  priorities, sampled by priority in batches of 256.

Batches are those that a learner gets: time-major, and for windows with keys and probabilities.  The other side is in
`replay_by_hand`.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..data import Layout, Record
from ..launch.node_rules import RULES
from ..replay import (
    Elements,
    ReplayHandle,
    SequenceWriter,
    WindowFormat,
    WindowWriter,
    queue_dataset,
    sampled_dataset,
)
from .harness import Case
from .replay_by_hand import ReplayByHand
from .replay_work import BATCH, LENGTH, PRIORITY_EXPONENT, STEPS, TABLE, Direction, Kind, ReplaySide
from .streams import OBSERVATIONS


class OurReplay(ReplaySide):
    """Through `SequenceWriter` and `queue_dataset`, or `WindowWriter` and `sampled_dataset`."""

    def writer(self, kind: Kind, layout: Layout) -> tuple[Callable[[Record], None], Callable[[], None], Any]:
        writer: Any
        if kind == "sequences":
            writer = SequenceWriter(self._handle(), layout, TABLE, LENGTH, LENGTH)
        else:
            writer = WindowWriter(self._handle(), WindowFormat(layout, STEPS), TABLE, _size_of_reward)

        def write(timestep: Record) -> None:
            while not writer.ready(0.5):
                pass
            writer.append(timestep, ())

        def flush() -> None:
            while not writer.ready(0.5, max_pending=0):
                pass

        return write, flush, lambda: writer.items_written

    def reader(self, kind: Kind, layout: Layout) -> Iterator[Any]:
        if kind == "sequences":
            make = functools.partial(queue_dataset, self._handle(), layout, TABLE, LENGTH, BATCH[kind])
        else:
            make = functools.partial(
                sampled_dataset,
                self._handle(),
                WindowFormat(layout, STEPS),
                TABLE,
                replica_batch=BATCH[kind],
                priority_exponent=PRIORITY_EXPONENT,
            )
        return iter(Elements(make()))

    def _handle(self) -> ReplayHandle:
        return ReplayHandle(lambda: [self.address])


def _size_of_reward(record: Record) -> np.ndarray:
    return np.abs(record.reward[0])


def cases(quick: bool) -> list[Case]:
    kinds: list[Kind] = ["sequences", "windows"]
    # Several seconds of each.
    batches = {
        ("sequences", "4 floats"): 3000,
        ("sequences", "84x84 bytes"): 300,
        ("windows", "4 floats"): 1000,
        ("windows", "84x84 bytes"): 200,
    }
    found = []
    for observation, kind in itertools.product(OBSERVATIONS, kinds):
        amounts: dict[Direction, float] = {
            "insert": 0.3 if quick else 5.0,
            "sample": 3 if quick else batches[kind, observation],
        }
        for direction, amount in amounts.items():
            settings = (kind, observation, direction, amount)
            found.append(
                Case(
                    f"{direction} {kind} of {observation}",
                    "items/s",
                    functools.partial(OurReplay, *settings),
                    functools.partial(ReplayByHand, *settings),
                    target=0.90,
                    rules=RULES["actor" if direction == "insert" else "learner"],
                )
            )
    return found
