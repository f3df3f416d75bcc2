"""Writer of batched timesteps as items of single environments, each with its own priority, or of whole batches.

An item holds `length` transitions: a slice of consecutive timesteps that may cross the end of an episode, which
`first`, `last` and the discounts mark.  Overlapping items share their timesteps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tree

from ...data import Nest, Record
from ..servers.handle import ReplayHandle
from .batch_writers import CHUNK_LENGTH, PerEnvironmentWriters, WholeBatchWriter
from .item_format import ItemFormat, cut, leaf_indices
from .sequences import DiscountedReturns, check_shapes

Priority = Callable[[Record], np.ndarray]
"""Computes the initial priorities `[W]` of W items.  Takes a `Record` of arrays with the shapes of a `Sample`, but
without observations, and with extras `[length + 1, W, ...]` that include those at the last observation."""

_CLOSE_SECONDS = 2.0
_SPARE_ROWS = 100


class ItemWriter:
    """Writes the timesteps of one actor's environments as items, one every `period` timesteps of an environment.

    With `item_format.together` above 1, an item holds those of the whole batch, see `reading.whole_batches`.  With
    further goals, each timestep comes with those of the window that begins there, see `hindsight`.

    Args:
      replay: handle of the replay to write to.
      item_format: format of the items; the first `append` raises `ValueError` if a shape or dtype differs.
      table: the table's name.
      period: timesteps between the starts of consecutive items.
      priority: computes initial priorities; None sets all of them to 1.
      shard: index of the replay shard.
      exponent: alpha; items of whole batches hold the weights priority^alpha.
    """

    def __init__(
        self,
        replay: ReplayHandle,
        item_format: ItemFormat,
        table: str,
        period: int = 1,
        priority: Priority | None = None,
        shard: int = 0,
        exponent: float = 1.0,
    ):
        batch, length = item_format.layout.envs_per_actor, item_format.length
        whole_batches = item_format.together > 1
        self._format = item_format
        self._batch = batch
        self._table = table
        self._period = period
        self._priority = priority
        self._exponent = exponent
        self._rows = item_format.rows.rows(batch)
        self._states = item_format.state.rows(batch) if item_format.state else None
        self._appended: Any = self._rows.bytes if whole_batches else list(self._rows.bytes)  # Views.
        kind: Any = WholeBatchWriter if whole_batches else PerEnvironmentWriters
        span = length + item_format.stack
        self._writers = kind(replay, shard, batch, span, keeps_state=self._states is not None)
        self._recent = RecentRecords(item_format.layout.record, batch, length, all_fields=priority is not None)
        self._all_envs = list(range(batch))
        self._timesteps = 0
        self._since_ready = 0
        self._age = np.zeros(batch, np.int32)
        discount = item_format.returns_discount
        self._returns = None if discount is None else DiscountedReturns(discount, batch)
        self._whole_stack_from = np.zeros(batch, np.int64)
        self.items_written = 0

    def append(self, record: Record, state: Nest = ()) -> None:
        """Adds one timestep: a `Record` of arrays `[B, ...]` and the recurrent state `[B, ...]` before it.

        Never blocks; call `ready` before the next timestep.
        """
        self.append_with(record, state, ())

    def append_with(self, record: Record, state: Nest, hindsight: Sequence[Any]) -> None:
        """Adds one timestep, as `append` does, with further goals.

        Args:
          record: the timestep.
          state: the recurrent state.
          hindsight: the leaves of the timestep's `Hindsight`, `[B, ...]`, if items have further goals.
        """
        if self._timesteps == 0:
            check_shapes(record, self._format.layout.record)
            # A writer that starts in the middle of an episode does not have the previous frames.
            self._whole_stack_from[~np.asarray(record.first)] = self._format.stack - 1
        else:
            self._age += 1
            self._age[record.first] = 0
        # `tree` is slow, so it is called only once per timestep.
        leaves = tree.flatten(record)
        self._recent.append(leaves)
        start = self._timesteps - self._format.length
        envs = self._ended(start) if start >= 0 and start % self._period == 0 else []
        priorities = self._priorities(envs) if envs else []
        weights: Any = ()
        if self._format.has_weights:
            goals = self._format.goals
            weights = np.zeros((self._batch, 1 + goals) if goals else self._batch, np.float32)
            if envs:
                weights[envs] = self.weights(envs, priorities)
                own = weights[envs]
                priorities = (own.sum(axis=1) if goals else own).tolist()
        discounted_return = () if self._returns is None else self._returns.after(record)
        self._rows.fill(self._format.row_leaves(self._age, leaves, discounted_return, weights, hindsight))
        begins = self._timesteps % self._period == 0
        states = self._states.fill(self._format.state_leaves(state)) if self._states is not None and begins else None
        for _ in range(self._format.stack if self._timesteps == 0 else 1):
            self._writers.append(self._appended, states)
        if envs:
            length, stack = self._format.length, self._format.stack
            self.items_written += self._writers.create_items(self._table, envs, priorities, length, stack)
        self._timesteps += 1
        self._since_ready += 1

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """Waits up to `timeout` seconds for the server to catch up; returns False if it has not.

        While it returns False the actor must not step, or pending items would accumulate in memory.
        """
        if max_pending is not None:
            return self._writers.ready(timeout, max_pending // self._writers.number)
        # Items are only sent when their chunk is full, so checking all writers more often would waste time.
        if self._since_ready < CHUNK_LENGTH:
            return True
        # A lower limit would close chunks before they are full.
        if not self._writers.ready(timeout, 2 * CHUNK_LENGTH):
            return False
        self._since_ready = 0
        return True

    def close(self) -> None:
        """Waits at most 2 s for the server to confirm complete items, and closes the connection."""
        self._writers.ready(_CLOSE_SECONDS, max_pending=0)
        self._writers.close()

    def chosen(self, record: Record) -> np.ndarray | None:
        """Returns which environments' newest items to write, bool `[B]`; None for all."""
        return None

    def as_sampled(self, record: Record, envs: list[int]) -> Record:
        """Converts records of these environments to what a reader of the items will get, by goal if there are several.

        Those of an environment are side by side then.
        """
        return record

    def weights(self, envs: list[int], priorities: list[Any]) -> np.ndarray:
        """Returns the weights of the newest windows of these environments, by goal if there are several."""
        return np.power(priorities, self._exponent)

    def _ended(self, start: int) -> list[int]:
        """Returns the environments whose newest `length + 1` timesteps, which began at `start`, are to be sampled."""
        chosen = self.chosen(self._recent.sample())
        if start < self._format.stack - 1:
            whole = self._whole_stack_from <= start
            chosen = whole if chosen is None else chosen & whole
        return self._all_envs if chosen is None or chosen.all() else np.flatnonzero(chosen).tolist()

    def _priorities(self, envs: list[int]) -> list[Any]:
        """Returns the first priorities of the newest `length + 1` timesteps of these environments, as `as_sampled`."""
        if self._priority is None:
            return [1.0] * len(envs)
        record = self._recent.sample()
        if len(envs) < self._batch:
            record = tree.map_structure(lambda leaf: leaf[:, envs], record)
        return np.asarray(self._priority(self.as_sampled(record, envs))).tolist()


class RecentRecords:
    """Buffer of the records of the newest `length` transitions, without observations.

    Args:
      record: `Record` of `tf.TensorSpec` for one environment.
      batch: number of environments (B).
      length: number of transitions in the buffer.
      all_fields: whether to keep all fields, or only `first`, `last` and `discount`.
    """

    def __init__(self, record: Record, batch: int, length: int, all_fields: bool = True):
        def kept(record: Record) -> Record:
            rest = record._replace(observation=())
            return rest if all_fields else rest._replace(action=(), reward=(), extras=(), version=())

        self._rows = length + 1
        self._kept = leaf_indices(record, kept)
        # Spare rows keep the newest records contiguous; they are moved to the front only when the rows are used up.
        self._room = self._rows + _SPARE_ROWS
        fields = tree.map_structure(
            lambda spec: np.zeros((self._room, batch, *spec.shape), spec.dtype.as_numpy_dtype), kept(record)
        )
        self._leaves: list[np.ndarray] = tree.flatten(fields)
        # Views are created once, since creating them for each call would take as long as writing the timesteps.
        self._samples = [_sample(fields, start, length) for start in range(_SPARE_ROWS + 1)]
        self._end = 0

    def append(self, leaves: Sequence[Any]) -> None:
        """Adds a record by its leaves, in the order of `tree.flatten`."""
        if self._end == self._room:
            kept = self._rows - 1
            for leaf in self._leaves:
                leaf[:kept] = leaf[self._room - kept :].copy()
            self._end = kept
        end = self._end
        for field, index in zip(self._leaves, self._kept, strict=True):
            field[end] = leaves[index]
        self._end += 1

    def sample(self) -> Record:
        """Returns the newest records with the shapes of a `Sample`, but extras `[length + 1, B, ...]`.

        Fields that are not kept are `()`.  The arrays are read-only views, valid until the next `append`.
        """
        return self._samples[self._end - self._rows]


def _sample(fields: Record, start: int, length: int) -> Record:
    def view(leaf: np.ndarray) -> np.ndarray:
        rows = leaf[start : start + length + 1]
        rows.setflags(write=False)
        return rows

    rows = tree.map_structure(view, fields)
    transitions = slice(None, -1)
    return rows._replace(
        action=cut(rows.action, transitions),
        reward=cut(rows.reward, transitions),
        discount=cut(rows.discount, transitions),
        version=cut(rows.version, transitions),
    )
