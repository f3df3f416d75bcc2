"""Batched ticks in, n-step windows out: one to every tick that begins a transition, each with its own priority.

A window holds up to n transitions, and ends early where experience does: after a termination, at a time limit, before
a final observation that was lost, and where the writer is closed.  All windows have the same number of rows, and no
tick is stored twice: where a window is shorter its last tick is referred to again.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from .. import specs
from ..data import Layout, Nest, Record, Sample
from .environment_writers import CHUNK_LENGTH, EnvironmentWriters, ReplayItem
from .handle import ReplayHandle
from .packing import Packing
from .recent import RecentRecords
from .sequences import check_shapes
from .stacking import stack_rows

Priority = Callable[[Record], np.ndarray]
"""Gives first priorities `[W]` of windows from a `Record` of arrays as a `Sample` holds them, but without observations,
and with n + 1 extras: those at the observation to bootstrap from among them."""

_CLOSE_SECONDS = 2.0


def window_signature(layout: Layout, steps: int, stack: int = 1, keep_extras: bool = False) -> ReplayItem:
    """The `tf.TensorSpec` nest of a window of `steps` transitions, with frames to be stacked `stack` high."""
    packing = Packing(layout, keep_extras)
    return ReplayItem(
        packed=packing.signature(steps + 1),
        frames=specs.add_leading(packing.frame_specs, steps + stack),
        state=(),
    )


def read_windows(item: ReplayItem, layout: Layout, stack: int = 1, keep_extras: bool = False) -> Sample:
    """Time-major windows from a batch of items `[B, rows, ...]`.

    Returns:
      `Sample` of the n transitions.  Those that are not experience do not count (`losses.transitions.counts`): from the
      end of a short window on, `last` is True, rewards are 0 and discounts 1.  At the end of a window stands the
      observation to bootstrap from; after a termination whatever stands there has no meaning.
    """
    packing = Packing(layout, keep_extras)
    rows = packing.unpack(_time_major(item.packed))
    frames = [stack_rows(_time_major(frame), stack) for frame in item.frames]
    steps = rows.tick.shape[0] - 1
    position = tf.range(steps + 1, dtype=tf.int32)[:, tf.newaxis]
    # A tick that is there for the second time only fills the window up.
    seen = tf.equal(rows.tick, rows.tick[0] + position)
    counts = ~rows.last[:-1] & seen[:-1] & (seen[1:] | tf.equal(rows.discount[:-1], 0))
    record = Record(
        observation=packing.observation(rows.vectors, frames),
        first=rows.first & tf.equal(position, 0),
        last=tf.concat([~counts, rows.last[-1:]], axis=0),
        action=_without_last(rows.action),
        reward=tf.where(counts, rows.reward[:-1], tf.zeros_like(rows.reward[:-1])),
        discount=tf.where(counts, rows.discount[:-1], tf.ones_like(rows.discount[:-1])),
        extras=_without_last(rows.extras),
        version=_without_last(rows.version),
    )
    return Sample(record=record, state=())


class WindowWriter:
    """Writes the ticks of one actor's environments as windows of up to `steps` transitions.

    Args:
      replay: where to write.
      layout: names the record to expect; what differs in shape or dtype is refused at the first append.
      table: the table's name.
      steps: n.
      priority: gives first priorities; None makes all of them 1.
      stack: frames that a network sees at a time.
      keep_extras: whether replay keeps the policy's extras.
      shard: the replay shard.
    """

    def __init__(
        self,
        replay: ReplayHandle,
        layout: Layout,
        table: str,
        steps: int,
        priority: Priority | None = None,
        stack: int = 1,
        keep_extras: bool = False,
        shard: int = 0,
    ):
        batch = layout.envs_per_actor
        self._layout = layout
        self._table = table
        self._steps = steps
        self._stack = stack
        self._priority = priority
        self._packing = Packing(layout, keep_extras)
        self._writers = EnvironmentWriters(replay, shard, batch, self._packing, span=steps + stack)
        self._recent = RecentRecords(steps + 2)
        self._tick = 0
        self._episode_begin = np.zeros(batch, np.int64)
        self._next_start = np.zeros(batch, np.int64)
        """The first tick whose window is still open; all later ones that began a transition are open too."""
        self._cut_off_possible = np.zeros(batch, bool)
        """Whether the next tick may be `first` without the episode having ended before."""
        self.items_written = 0

    def append(self, record: Record, state: Nest = ()) -> None:
        """Adds one tick, a `Record` of arrays `[B, ...]`; the policy's state is not kept.

        Never blocks; call `ready` before the next tick.
        """
        tick, first, last = self._tick, np.asarray(record.first), np.asarray(record.last)
        if tick == 0:
            check_shapes(record, self._layout.record)
            # Where the writer takes over in the middle of an episode, no stack may reach before its first tick.
            self._next_start[~first] = self._stack - 1
        # The final observation is lost, and with it the transition to it: windows bootstrap one tick earlier.
        cut_off = np.flatnonzero(first & self._cut_off_possible)
        self._end_windows(cut_off, end=tick - 1, newest=tick - 1, starts_at_end=False)
        self._episode_begin[first] = tick
        self._next_start[first] = tick
        self._recent.put(tick, record)
        self._writers.append(self._packing.pack(record, tick), self._packing.frames(record.observation))
        full = np.flatnonzero(self._next_start == tick - self._steps)
        self._create_items(full, self._next_start[full], np.full(len(full), tick), newest=tick)
        self._next_start[full] += 1
        # A termination needs no final observation: nothing is bootstrapped.  At a time limit it is `last`.
        terminated = ~last & (np.asarray(record.discount) == 0)
        self._end_windows(np.flatnonzero(terminated), end=tick, newest=tick, starts_at_end=True)
        self._end_windows(np.flatnonzero(last), end=tick, newest=tick, starts_at_end=False)
        self._next_start[last | terminated] = tick + 1
        self._cut_off_possible = ~last & ~terminated
        self._tick += 1

    def ready(self, timeout: float, max_pending: int | None = None) -> bool:
        """Waits up to `timeout` seconds for the server to catch up; False if it has not.

        While it is False the actor must not step on: pending items would pile up in memory.
        """
        if max_pending is None:
            # Items wait for their chunk to be full; a lower number would close chunks before.
            each = 2 * CHUNK_LENGTH + self._steps
        else:
            each = max_pending // self._layout.envs_per_actor
        return self._writers.ready(timeout, each)

    def close(self) -> None:
        """Ends all windows at the newest observation, waits for the server for at most 2 s, and drops the connection."""
        if self._tick:
            newest = self._tick - 1
            still_open = np.flatnonzero(self._next_start < newest)
            self._end_windows(still_open, end=newest, newest=newest, starts_at_end=False)
            self._writers.ready(_CLOSE_SECONDS, max_pending=0)
        self._tick = 0
        self._writers.close()

    def _end_windows(self, envs: np.ndarray, end: int, newest: int, starts_at_end: bool) -> None:
        """Closes the open windows of some environments at tick `end`; one may begin there where it terminated."""
        if not len(envs):
            return
        stop = end + 1 if starts_at_end else end
        starts = [np.arange(self._next_start[env], stop) for env in envs]
        lengths = [len(of_env) for of_env in starts]
        if sum(lengths):
            ends = np.full(sum(lengths), end)
            self._create_items(np.repeat(envs, lengths), np.concatenate(starts), ends, newest)

    def _create_items(self, envs: np.ndarray, starts: np.ndarray, ends: np.ndarray, newest: int) -> None:
        """Windows of the environments `[W]`, from the ticks `starts` to `ends`."""
        if not len(envs):
            return
        rows = np.minimum(starts + np.arange(self._steps + 1)[:, np.newaxis], ends)
        frame_rows = np.minimum(starts + np.arange(1 - self._stack, self._steps + 1)[:, np.newaxis], ends)
        frame_rows = np.maximum(frame_rows, self._episode_begin[envs])
        priorities = np.ones(len(envs)) if self._priority is None else self._first_priorities(rows, envs)
        from_newest = -1 - newest
        for env, priority, item_rows, item_frames in zip(
            envs.tolist(),
            priorities.tolist(),
            (rows + from_newest).T.tolist(),
            (frame_rows + from_newest).T.tolist(),
            strict=True,
        ):
            self._writers.create_item(self._table, env, priority, item_rows, item_frames)
        self.items_written += len(envs)

    def _first_priorities(self, rows: np.ndarray, envs: np.ndarray) -> np.ndarray:
        """As in `read_windows`, in NumPy."""
        assert self._priority is not None
        record = self._recent.get(rows, envs)
        first, last, discount = record.first, record.last, record.discount
        seen = rows == rows[0] + np.arange(self._steps + 1)[:, np.newaxis]
        counts = ~last[:-1] & seen[:-1] & (seen[1:] | (discount[:-1] == 0))
        return self._priority(
            Record(
                observation=(),
                first=first & (np.arange(self._steps + 1) == 0)[:, np.newaxis],
                last=np.concatenate([~counts, last[-1:]]),
                action=tree.map_structure(lambda leaf: leaf[:-1], record.action),
                reward=np.where(counts, record.reward[:-1], 0),
                discount=np.where(counts, discount[:-1], 1),
                extras=record.extras,
                version=record.version[:-1],
            )
        )


def _time_major(leaf: tf.Tensor) -> tf.Tensor:
    return tf.transpose(leaf, (1, 0, *range(2, leaf.shape.rank)))


def _without_last(nest: Nest) -> Nest:
    return tree.map_structure(lambda leaf: leaf[:-1], nest)
