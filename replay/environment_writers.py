"""A Reverb writer to each environment of an actor's batch, for items that have priorities of their own."""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb
import tree

from ..data import Nest
from .handle import ReplayHandle
from .packing import Packing

# Ticks in a chunk.  Shorter ones cost memory for their own keeping; longer ones are sent whole for a few ticks of them,
# and live until the last item that refers to any of their ticks is gone.
CHUNK_LENGTH = 8


class ReplayItem(NamedTuple):
    """An item of one environment, as it lies in replay: slices of columns, each tick stored once."""

    packed: Any
    """uint8 `[rows, size]`, see `packing.Packing`."""
    frames: tuple[Any, ...]
    """For each kind of frame `[rows + stack - 1, height, width, channels]`."""
    state: Nest
    """The recurrent state that belongs to the first row, or `()`."""


class EnvironmentWriters:
    """Writers to a batch of environments, whose ticks are appended together and cut into items one by one.

    Args:
      replay: where to write.
      shard: the replay shard.
      batch: number of environments.
      packing: the columns.
      span: ticks that an item may reach back.
      state: spec of the recurrent state of one environment, where items keep it; the first tick must bring one.
    """

    def __init__(self, replay: ReplayHandle, shard: int, batch: int, packing: Packing, span: int, state: Nest = ()):
        client = replay.client(shard)
        alive = span + 2 * CHUNK_LENGTH
        # Not validated against the server's signature: that would ask the server, and wait for it without end.
        self._writers = [client.trajectory_writer(alive, validate_items=False) for _ in range(batch)]
        self._state = state
        self._frame_columns = range(1, 1 + len(packing.frame_specs))
        self._state_columns = range(self._frame_columns.stop, self._frame_columns.stop + len(tree.flatten(state)))
        for writer in self._writers:
            for column in range(self._frame_columns.stop):
                writer.configure((column,), num_keep_alive_refs=alive, max_chunk_length=CHUNK_LENGTH)
            for column in self._state_columns:
                writer.configure((column,), num_keep_alive_refs=alive, max_chunk_length=1)
        self._histories: list[Any] = []

    def append(self, packed: np.ndarray, frames: Sequence[Any], state: Nest = None) -> None:
        """Adds a tick of every environment: bytes `[B, size]`, frames `[B, ...]` of each kind, perhaps a state."""
        states = [None] * len(self._state_columns) if state is None else tree.flatten(state)
        for env, writer in enumerate(self._writers):
            leaves = (leaf if leaf is None else leaf[env] for leaf in states)
            writer.append((packed[env], *(frame[env] for frame in frames), *leaves))
        if not self._histories:
            # Views that stay the same while the columns grow.
            self._histories = [writer.history for writer in self._writers]

    def create_item(self, table: str, env: int, priority: float, rows: int, stack: int) -> None:
        """Makes an item of an environment's newest ticks.

        An item is always one slice of consecutive ticks: of a tick that is named twice, or left out, Reverb takes no
        notice within a chunk, and stores the ticks that follow in its place.

        Args:
          table: the table's name.
          env: index in the batch.
          priority: of the item.
          rows: ticks in it.  Where items keep a state, the first must have brought one.
          stack: the frames begin `stack - 1` ticks earlier.
        """
        if not (math.isfinite(priority) and priority >= 0):
            raise ValueError(f"a priority must be a number of at least 0, not {priority}")
        history = self._histories[env]
        trajectory = ReplayItem(
            packed=history[0][-rows:],
            frames=tuple(history[column][1 - rows - stack :] for column in self._frame_columns),
            state=tree.unflatten_as(self._state, [history[column][-rows] for column in self._state_columns]),
        )
        self._writers[env].create_item(table, priority, trajectory)

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
