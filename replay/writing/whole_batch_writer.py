"""One Reverb writer for an actor's whole batch, whose items hold what starts at one timestep in all environments."""

from collections.abc import Sequence

import numpy as np

from ..servers.handle import ReplayHandle, flushed
from .per_environment_writers import CHUNK_LENGTH, check_priorities


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
    ) -> None:
        """Creates one item of the newest timesteps, whose priority is the sum of those of its environments.

        Raises:
          CallboardError: a priority is negative or not finite.
        """
        check_priorities(priorities)
        history, newest = self._writer.history, slice(-length - stack, None)
        columns = [history[0][newest], history[1][-length - 1]] if self._keeps_state else [history[newest]]
        self._writer.create_item(table, sum(priorities), columns)

    def ready(self, timeout: float, max_pending: int) -> bool:
        """Waits up to `timeout` seconds until at most `max_pending` items are unconfirmed; returns whether they are."""
        return flushed(self._writer, timeout, max_pending)

    def close(self) -> None:
        """Closes the connection; unconfirmed items are lost."""
        self._writer.close()
