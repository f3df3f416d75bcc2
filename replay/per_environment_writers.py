"""A Reverb writer to each environment of an actor's batch, for items that have priorities of their own."""

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb

from ..data import CallboardError
from .handle import ReplayHandle

# Timesteps in a chunk.  Shorter ones cost memory for their own keeping; longer ones are sent whole for a few timesteps
# of them, and live until the last item that refers to any of their timesteps is gone.
CHUNK_LENGTH = 8


class ReplayItem(NamedTuple):
    """An item of one environment, as it lies in replay: slices of columns, each timestep stored once."""

    rows: Any
    """uint8 `[length + stack, size]`: a row to each timestep, see `items.Row`; the first `stack - 1` are there to
    stack.
    """
    state: Any
    """uint8 `[size]`: the recurrent state that belongs to the timestep after those; `()` where none is kept."""


class PerEnvironmentWriters:
    """Writers to a batch of environments, whose timesteps are appended together and cut into items one by one.

    Args:
      replay: where to write.
      shard: the replay shard.
      batch: number of environments.
      span: timesteps that an item may reach back.
      keeps_state: whether items keep a recurrent state; the first timestep must bring one.
    """

    def __init__(self, replay: ReplayHandle, shard: int, batch: int, span: int, keeps_state: bool):
        client = replay.client(shard)
        alive = span + 2 * CHUNK_LENGTH
        # Not validated against the server's signature: that would ask the server, and wait for it without end.
        self._writers = [client.trajectory_writer(alive, validate_items=False) for _ in range(batch)]
        self._keeps_state = keeps_state
        # A single column costs half as much where it is not an element of anything.
        rows: tuple[int, ...] = (0,) if keeps_state else ()
        for writer in self._writers:
            writer.configure(rows, num_keep_alive_refs=alive, max_chunk_length=CHUNK_LENGTH)
            if keeps_state:
                writer.configure((1,), num_keep_alive_refs=alive, max_chunk_length=1)
        self._histories: list[Any] = []

    def append(self, rows: Iterable[np.ndarray], states: np.ndarray | None = None) -> None:
        """Adds a timestep of every environment: B rows of bytes, and perhaps the bytes of states `[B, size]`."""
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
            # Views that stay the same while the columns grow.
            self._histories = [writer.history for writer in self._writers]

    def create_items(
        self, table: str, envs: Sequence[int], priorities: Sequence[float], length: int, stack: int
    ) -> None:
        """Makes an item of the newest timesteps of each of some environments.

        An item is always one slice of consecutive timesteps: of a timestep that is named twice, or left out, Reverb
        takes no notice within a chunk, and stores the timesteps that follow in its place.

        Args:
          table: the table's name.
          envs: indices in the batch.
          priorities: one to each of `envs`.
          length: transitions in an item.  Where items keep a state, the timestep that begins them must have brought
            one.
          stack: the items begin `stack - 1` timesteps earlier.
        """
        for priority in priorities:
            if not 0 <= priority < math.inf:
                raise CallboardError(
                    f"the first priority of an item is {priority}, and must be a finite number of at least 0: "
                    "check that rewards are not too large"
                )
        newest, begin = slice(-length - stack, None), -length - 1
        for env, priority in zip(envs, priorities, strict=True):
            history = self._histories[env]
            columns = [history[0][newest], history[1][begin]] if self._keeps_state else [history[newest]]
            self._writers[env].create_item(table, priority, columns)

    def ready(self, timeout: float, max_pending: int) -> bool:
        """Waits up to `timeout` seconds until each writer has at most `max_pending` items on their way."""
        deadline = time.monotonic() + timeout
        try:
            for writer in self._writers:
                writer.flush(max_pending, max(0, int((deadline - time.monotonic()) * 1000)))
        except reverb.errors.DeadlineExceededError:
            return False
        return True

    def close(self) -> None:
        """Drops the connections; items that are not confirmed by now are lost."""
        for writer in self._writers:
            writer.close()
