"""Reverb writers of an actor's batch: one per environment, for items with individual priorities, or one for all."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import CallboardError
from ...runtime.deadlines import Deadline
from ..servers.handle import ReplayHandle, flushed

# Timesteps in a chunk.  Shorter chunks have more memory overhead.  Longer chunks are sent whole even if only a few of
# their timesteps are needed, and are kept until the last item that refers to any of their timesteps is removed.
CHUNK_LENGTH = 8


class ReplayItem(NamedTuple):
    """An item of one environment as stored in replay: slices of columns that store each timestep once."""

    rows: Any
    """uint8 `[length + stack, size]`, one `item_format.Row` per timestep; the first `stack - 1` only serve to stack."""
    state: Any
    """uint8 `[size]`, the recurrent state at the timestep after those; `()` if no state is stored."""


class PerEnvironmentWriters:
    """Writers of a batch of environments: timesteps are appended together, items are created per environment.

    Args:
      replay: handle of the replay to write to.
      shard: index of the replay shard.
      batch: number of environments.
      span: maximum number of timesteps in an item.
      keeps_state: whether items store a recurrent state; the first timestep must then have one.
    """

    def __init__(self, replay: ReplayHandle, shard: int, batch: int, span: int, keeps_state: bool):
        client = replay.client(shard)
        alive = span + 2 * CHUNK_LENGTH
        # No validation against the server's signature: it would request the signature and wait for it forever.
        self._writers = [client.trajectory_writer(alive, validate_items=False) for _ in range(batch)]
        self.number = batch
        """Reverb writers, each of which has unconfirmed items of its own."""
        self._keeps_state = keeps_state
        # A single column takes half the time if it is not inside a tuple.
        rows: tuple[int, ...] = (0,) if keeps_state else ()
        for writer in self._writers:
            writer.configure(rows, num_keep_alive_refs=alive, max_chunk_length=CHUNK_LENGTH)
            if keeps_state:
                writer.configure((1,), num_keep_alive_refs=alive, max_chunk_length=1)
        self._histories: list[Any] = []

    def append(self, rows: Iterable[np.ndarray], states: np.ndarray | None = None) -> None:
        """Adds a timestep of every environment: B rows of bytes, and optionally packed states `[B, size]`."""
        if not self._keeps_state:
            for writer, row in zip(self._writers, rows, strict=True):
                writer.append(row)
        elif states is None:
            for writer, row in zip(self._writers, rows, strict=True):
                writer.append((row,))
        else:
            for writer, row, state in zip(self._writers, rows, states, strict=True):
                writer.append((row, state))
        if not self._histories:
            # Views that remain valid while the columns grow.
            self._histories = [writer.history for writer in self._writers]

    def create_items(
        self, table: str, envs: Sequence[int], priorities: Sequence[float], length: int, stack: int
    ) -> int:
        """Creates an item of the newest timesteps for each of the given environments.

        An item is always a slice of consecutive timesteps: within a chunk Reverb silently ignores repeated or skipped
        timesteps and stores the following ones instead.

        Args:
          table: the table's name.
          envs: indices in the batch.
          priorities: one for each of `envs`.
          length: transitions in an item.  If items store a state, it must have been appended with their first timestep.
          stack: number of stacked frames; items start `stack - 1` timesteps earlier.

        Returns:
          How many items were created.

        Raises:
          CallboardError: a priority is negative or not finite.
        """
        check_priorities(priorities)
        newest, begin = slice(-length - stack, None), -length - 1
        for env, priority in zip(envs, priorities, strict=True):
            history = self._histories[env]
            columns = [history[0][newest], history[1][begin]] if self._keeps_state else [history[newest]]
            self._writers[env].create_item(table, priority, columns)
        return len(envs)

    def ready(self, timeout: float, max_pending: int) -> bool:
        """Waits up to `timeout` seconds until each writer has at most `max_pending` unconfirmed items.

        Returns:
          Whether that is so.
        """
        deadline = Deadline(timeout)
        return all(flushed(writer, deadline.left, max_pending) for writer in self._writers)

    def close(self) -> None:
        """Closes the connections; unconfirmed items are lost."""
        for writer in self._writers:
            writer.close()


def check_priorities(priorities: Sequence[float]) -> None:
    """Raises `CallboardError` if a first priority is negative or not finite."""
    for priority in priorities:
        if not 0 <= priority < math.inf:
            raise CallboardError(
                f"the first priority of an item is {priority}, and must be a finite number of at least 0: "
                "check that rewards are not too large"
            )


class WholeBatchWriter:
    """Writer of a batch of environments, as `PerEnvironmentWriters` are, whose items hold the whole batch.

    Args:
      replay: handle of the replay to write to.
      shard: index of the replay shard.
      batch: number of environments.
      span: maximum number of timesteps in an item.
      keeps_state: whether items store a recurrent state; the first timestep must then have one.
    """

    def __init__(self, replay: ReplayHandle, shard: int, batch: int, span: int, keeps_state: bool):
        alive = span + 2 * CHUNK_LENGTH
        self._writer = replay.client(shard).trajectory_writer(alive, validate_items=False)
        self.number = 1
        self._keeps_state = keeps_state
        self._writer.configure((0,) if keeps_state else (), num_keep_alive_refs=alive, max_chunk_length=CHUNK_LENGTH)
        if keeps_state:
            self._writer.configure((1,), num_keep_alive_refs=alive, max_chunk_length=1)

    def append(self, rows: np.ndarray, states: np.ndarray | None = None) -> None:
        """Adds a timestep of all environments: rows `[B, size]` of bytes, and optionally packed states, likewise."""
        if not self._keeps_state:
            self._writer.append(rows)
        else:
            self._writer.append((rows,) if states is None else (rows, states))

    def create_items(
        self, table: str, envs: Sequence[int], priorities: Sequence[float], length: int, stack: int
    ) -> int:
        """Creates one item of the newest timesteps, whose priority is the sum of those of its environments; returns 1.

        Raises:
          CallboardError: a priority is negative or not finite.
        """
        check_priorities(priorities)
        history, newest = self._writer.history, slice(-length - stack, None)
        columns = [history[0][newest], history[1][-length - 1]] if self._keeps_state else [history[newest]]
        self._writer.create_item(table, sum(priorities), columns)
        return 1

    def ready(self, timeout: float, max_pending: int) -> bool:
        """Waits up to `timeout` seconds until at most `max_pending` items are unconfirmed; returns whether they are."""
        return flushed(self._writer, timeout, max_pending)

    def close(self) -> None:
        """Closes the connection; unconfirmed items are lost."""
        self._writer.close()
