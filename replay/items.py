"""Batched ticks in, items of single environments out, each with its own priority.

An item holds `length` transitions, a slice of consecutive ticks that may reach over the end of an episode; what lies
beyond is told by `first`, `last` and the discounts.  Items that overlap share their ticks.
"""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from .. import specs
from ..data import Layout, Nest, Record
from .environment_writers import CHUNK_LENGTH, EnvironmentWriters, ReplayItem
from .handle import ReplayHandle
from .packing import Fields, Packing
from .sequences import check_shapes
from .stacking import stack_rows

Priority = Callable[[Record], np.ndarray]
"""Gives first priorities `[W]` of items from a `Record` of arrays as a `Sample` holds them, but without observations,
and with extras `[length + 1, W, ...]`: those at the last observation are among them."""

_CLOSE_SECONDS = 2.0


def item_signature(packing: Packing, length: int, stack: int = 1, state: Nest = ()) -> ReplayItem:
    """The `tf.TensorSpec` nest of an item of `length` transitions, with frames to be stacked `stack` high."""
    return ReplayItem(
        packed=packing.signature(length + 1),
        frames=specs.add_leading(packing.frame_specs, length + stack),
        state=state,
    )


def read_rows(item: ReplayItem, packing: Packing, stack: int) -> tuple[Fields, Nest]:
    """The rows of a batch of items, time-major `[length + 1, B, ...]`: fields, and the observations with stacks."""
    fields = packing.unpack(_time_major(item.packed))
    frames = [stack_rows(_time_major(frame), fields.age, stack) for frame in item.frames]
    return fields, packing.observation(fields.vectors, frames)


def without_last(nest: Nest) -> Nest:
    """All rows but the last."""
    return tree.map_structure(lambda leaf: leaf[:-1], nest)


class ItemWriter:
    """Writes the ticks of one actor's environments as items of `length` transitions, one every `period` ticks.

    Args:
      replay: where to write.
      layout: names the record to expect; what differs in shape or dtype is refused at the first append.
      table: the table's name.
      length: transitions in an item.
      period: ticks between the starts of two items.
      packing: the columns.
      priority: gives first priorities; None makes all of them 1.
      stack: frames that a network sees at a time.
      keeps_state: whether items keep the recurrent state of their first tick.
      shard: the replay shard.
    """

    def __init__(
        self,
        replay: ReplayHandle,
        layout: Layout,
        table: str,
        length: int,
        period: int,
        packing: Packing,
        priority: Priority | None,
        stack: int,
        keeps_state: bool,
        shard: int,
    ):
        batch = layout.envs_per_actor
        state = layout.state if keeps_state else ()
        self._layout = layout
        self._table = table
        self._length = length
        self._period = period
        self._packing = packing
        self._priority = priority
        self._stack = stack
        self._keeps_state = keeps_state
        self._writers = EnvironmentWriters(replay, shard, batch, packing, length + stack, state)
        self._recent: collections.deque[Record] = collections.deque(maxlen=length + 1)
        self._ticks = 0
        self._age = np.zeros(batch, np.int64)
        self._whole_stack_from = np.zeros(batch, np.int64)
        self.items_written = 0

    def append(self, record: Record, state: Nest = ()) -> None:
        """Adds one tick: a `Record` of arrays `[B, ...]` and the recurrent state `[B, ...]` that it began with.

        Never blocks; call `ready` before the next tick.
        """
        kept = state if self._keeps_state and self._ticks % self._period == 0 else None
        if self._ticks == 0:
            check_shapes(record, self._layout.record)
            # Where the writer takes over in the middle of an episode, it has not seen the frames before.
            self._whole_stack_from[~np.asarray(record.first)] = self._stack - 1
            for _ in range(self._stack - 1):
                self._append_columns(record, kept)
        else:
            self._age = np.where(record.first, 0, self._age + 1)
        self._append_columns(record, kept)
        self._recent.append(record._replace(observation=()))
        start = self._ticks - self._length
        if start >= 0 and start % self._period == 0:
            self._create_items(start)
        self._ticks += 1

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """Waits up to `timeout` seconds for the server to catch up; False if it has not.

        While it is False the actor must not step on: pending items would pile up in memory.
        """
        if max_pending is None:
            # Items wait for their chunk to be full; a lower number would close chunks before.
            each = 2 * CHUNK_LENGTH
        else:
            each = max_pending // self._layout.envs_per_actor
        return self._writers.ready(timeout, each)

    def close(self) -> None:
        """Waits for the server to confirm what is complete, for at most 2 s, and drops the connection."""
        self._writers.ready(_CLOSE_SECONDS, max_pending=0)
        self._writers.close()

    def chosen(self, record: Record) -> np.ndarray:
        """Which environments' items are worth writing, bool `[B]`, by their records `[length + 1, B, ...]`."""
        return np.ones(record.first.shape[1], bool)

    def as_sampled(self, record: Record) -> Record:
        """Records `[length + 1, W, ...]` as a sample shows them, with one more row of extras."""
        return record._replace(
            action=without_last(record.action),
            reward=record.reward[:-1],
            discount=record.discount[:-1],
            version=record.version[:-1],
        )

    def _append_columns(self, record: Record, state: Nest) -> None:
        self._writers.append(self._packing.pack(record, self._age), self._packing.frames(record.observation), state)

    def _create_items(self, start: int) -> None:
        """The items of the newest `length + 1` ticks."""
        record = tree.map_structure(lambda *leaves: np.stack(leaves), *self._recent)
        envs = np.flatnonzero(self.chosen(record) & (self._whole_stack_from <= start))
        if not len(envs):
            return
        priorities = np.ones(len(envs))
        if self._priority is not None:
            chosen = tree.map_structure(lambda leaf: leaf[:, envs], record)
            priorities = self._priority(self.as_sampled(chosen))
        for env, priority in zip(envs.tolist(), priorities.tolist(), strict=True):
            self._writers.create_item(self._table, env, priority, self._length + 1, self._stack)
        self.items_written += len(envs)


def _time_major(leaf: tf.Tensor) -> Any:
    return tf.transpose(leaf, (1, 0, *range(2, leaf.shape.rank)))
