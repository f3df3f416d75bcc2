"""The work of the benchmark `replay`, the same on both sides: kinds of items, their sizes, the server and the clock."""

import functools
import itertools
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import reverb

from ..data import Layout, Record
from ..replay import WindowFormat, sequence_signature, start_server
from .side import ServingProcess, Side
from .streams import OBSERVATIONS, layout_of, timesteps_of

Kind = Literal["sequences", "windows"]
Direction = Literal["insert", "sample"]

TABLE = "bench"
ENVS = 16
LENGTH = 20
STEPS = 3
PRIORITY_EXPONENT = 0.6
BATCH: dict[Kind, int] = {"sequences": 32, "windows": 256}
"""Sequences or windows in a batch."""
ENVS_PER_ITEM: dict[Kind, int] = {"sequences": ENVS, "windows": 1}
ROOM = 4_000
"""Items in a table of windows."""
IN_WAITING = 4
"""Batches left in a queue when the time is taken, so that as much has been prefetched as at the start."""


class ReplaySide(Side):
    """One side, in one direction.

    Args:
      kind: kind of the items.
      observation: one of `streams.OBSERVATIONS`.
      direction: what is measured.
      amount: seconds to insert, or batches to read.
    """

    def __init__(self, kind: Kind, observation: str, direction: Direction, amount: float):
        self._server = ServingProcess()
        port = self._server.start(functools.partial(_serve_tables, kind, observation, direction))
        self.address = f"localhost:{port}"
        self._kind = kind
        self._layout = layout_of(OBSERVATIONS[observation], ENVS)
        self._direction = direction
        self._amount = amount
        self._timesteps = itertools.cycle(timesteps_of(self._layout))
        self._write, self._flush, self._written = self.writer(kind, self._layout)
        self._batches: Iterator[Any] | None = None

    def writer(self, kind: Kind, layout: Layout) -> tuple[Callable[[Record], None], Callable[[], None], Any]:
        """Return three functions for writing.

        The first writes a timestep and, where necessary, waits for the server; the second waits for all pending items;
        the third returns the number of items written so far.
        """
        raise NotImplementedError

    def reader(self, kind: Kind, layout: Layout) -> Iterator[Any]:
        """Return an endless iterator of batches."""
        raise NotImplementedError

    def measure(self) -> float:
        return self._insert(self._amount) if self._direction == "insert" else self._sample(int(self._amount))

    def close(self) -> None:
        self._server.close()

    def _insert(self, seconds: float) -> float:
        for _ in range(2 * LENGTH):
            self._write(next(self._timesteps))
        self._flush()
        before, begun = self._written(), time.perf_counter()
        while time.perf_counter() - begun < seconds:
            self._write(next(self._timesteps))
        self._flush()
        return (self._written() - before) / (time.perf_counter() - begun)

    def _sample(self, batches: int) -> float:
        items = BATCH[self._kind] // ENVS_PER_ITEM[self._kind]
        if self._kind == "sequences":
            self._fill((batches + IN_WAITING) * items)
        elif self._written() == 0:
            self._fill(ROOM)
        if self._batches is None:
            self._batches = self.reader(self._kind, self._layout)
            if self._kind == "sequences":
                self._fill(IN_WAITING * items)
        for _ in range(IN_WAITING):
            next(self._batches)
        begun = time.perf_counter()
        for _ in range(batches):
            next(self._batches)
        return batches * items / (time.perf_counter() - begun)

    def _fill(self, items: int) -> None:
        before = self._written()
        while self._written() - before < items:
            self._write(next(self._timesteps))
        self._flush()


def _serve_tables(kind: Kind, observation: str, direction: Direction) -> tuple[Any, int]:
    layout = layout_of(OBSERVATIONS[observation], ENVS)
    if kind == "windows":
        table = reverb.Table(
            TABLE,
            sampler=reverb.selectors.Prioritized(PRIORITY_EXPONENT),
            remover=reverb.selectors.Fifo(),
            max_size=ROOM,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=WindowFormat(layout, STEPS).signature(),
        )
    else:
        # Items are read once and in order; without a reader, the oldest are removed.
        table = reverb.Table(
            TABLE,
            sampler=reverb.selectors.Fifo(),
            remover=reverb.selectors.Fifo(),
            max_size=100 if direction == "insert" else 10**6,
            max_times_sampled=1,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=sequence_signature(layout, LENGTH, ENVS),
        )
    directory = tempfile.TemporaryDirectory(prefix="callboard-bench-")
    server = start_server([table], None, pathlib.Path(directory.name), restore=False)
    return (server, directory), server.port
