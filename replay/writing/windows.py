"""n-step windows: up to n transitions from every timestep that starts a valid transition.

A window ends early after a termination, at a time limit, before a final observation that was lost, and where the writer
is closed.  In replay it is always a slice of n + 1 consecutive timesteps; timesteps past its end are masked when it is
read.
"""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from ...data import Nest, Record, Sample, any_true
from ...transitions import reached_transitions, valid_transitions
from ..servers.handle import ReplayHandle
from .batch_writers import ReplayItem
from .hindsight import UNKNOWN, Hindsight, relabeled
from .item_format import ItemFormat, without_last
from .item_writer import ItemWriter, Priority


@dataclasses.dataclass(frozen=True)
class WindowFormat(ItemFormat):
    """Format of windows of up to `length` transitions (n)."""

    def read(self, item: ReplayItem, goal: tf.Tensor | None = None) -> Sample:
        """Converts a batch of items `[B, n + 1, ...]` to time-major windows, each with the goal of that index.

        Returns:
          A `Sample` of n transitions.  Those past the end of a short window are not valid: `last` is True, rewards are
          0 and discounts 1.  The observation after the last valid transition is the one to bootstrap from; after a
          termination it is meaningless, and `first` if it is another episode's.
        """
        sample = self.unpack(item)
        rows = sample.record._replace(reward=sample.record.reward[:-1], discount=sample.record.discount[:-1])
        if goal is not None:
            rows = relabeled(rows, self.hindsight(item), goal)
        discount = rows.discount
        valid = valid_transitions(rows.first, rows.last, discount)
        reached = tf.stack(reached_transitions(tf.unstack(valid), tf.unstack(discount)))
        record = rows._replace(
            first=tf.concat([rows.first[:1], rows.first[1:] & reached], axis=0),
            last=tf.concat([~reached, rows.last[-1:]], axis=0),
            action=without_last(rows.action),
            reward=tf.where(reached, rows.reward, 0.0),
            discount=tf.where(reached, discount, 1.0),
            extras=without_last(rows.extras),
            version=rows.version[:-1],
        )
        return sample._replace(record=record, discounted_return=without_last(sample.discounted_return))


class WindowWriter(ItemWriter):
    """Writes the timesteps of one actor's environments as windows of up to n transitions.

    Args:
      replay: handle of the replay to write to.
      item_format: format of the windows; the first `append` raises `ValueError` if a shape or dtype differs.
      table: the table's name.
      priority: computes initial priorities; None sets all of them to 1.
      shard: index of the replay shard.
      exponent: alpha of the weights in items of whole batches.
    """

    def __init__(
        self,
        replay: ReplayHandle,
        item_format: WindowFormat,
        table: str,
        priority: Priority | None = None,
        shard: int = 0,
        exponent: float = 1.0,
    ):
        super().__init__(replay, item_format, table, priority=priority, shard=shard, exponent=exponent)
        self._newest: Record | None = None
        self._timesteps_within = 0
        self._hindsight: collections.deque[Sequence[Any]] = collections.deque(maxlen=item_format.length + 1)

    def append_with(self, record: Record, state: Nest, hindsight: Sequence[Any]) -> None:
        """Adds one timestep, see `ItemWriter`; the policy's state is not stored."""
        self._append(record, hindsight)
        self._newest = record

    def close(self) -> None:
        """Ends open windows at the newest observation, waits at most 2 s for the server, and closes the connection."""
        if self._newest is not None:
            # As if all episodes were cut off here: windows end, and get the timesteps that they still lack as padding.
            batch = len(self._newest.first)
            cut_off = self._newest._replace(
                first=np.ones(batch, bool), last=np.zeros(batch, bool), discount=np.ones(batch, np.float32)
            )
            for _ in range(self._format.length):
                self._append(cut_off, self._hindsight[-1] if self._hindsight else ())
            self._newest = None
        super().close()

    def chosen(self, record: Record) -> np.ndarray | None:
        """Selects the windows whose first transition is valid."""
        if self._all_reached():
            return None
        return valid_transitions(record.first[:2], record.last[:2], record.discount[:1])[0]

    def as_sampled(self, record: Record, envs: list[int]) -> Record:
        if self._format.goals:
            goals = 1 + self._format.goals
            hindsight = Hindsight(*(leaf[envs].repeat(goals, axis=0) for leaf in self._hindsight[0]))
            record = tree.map_structure(lambda leaf: leaf.repeat(goals, axis=1), record)
            record = relabeled(record, hindsight, np.arange(len(envs) * goals) % goals)
        elif self._all_reached():
            return record
        valid = valid_transitions(record.first, record.last, record.discount)
        reached = np.stack(reached_transitions(valid, record.discount))
        first, last = record.first.copy(), record.last.copy()
        first[1:] &= reached
        last[:-1] = ~reached
        return record._replace(
            first=first,
            last=last,
            reward=np.where(reached, record.reward, np.float32(0)),
            discount=np.where(reached, record.discount, np.float32(1)),
        )

    def weights(self, envs: list[int], priorities: list[Any]) -> np.ndarray:
        weights = super().weights(envs, priorities)
        if not self._format.goals:
            return weights
        known = Hindsight(*self._hindsight[0]).outcome[envs, :, 0] != UNKNOWN
        return weights.reshape(len(envs), -1) * np.insert(known, 0, True, axis=1)

    def _append(self, record: Record, hindsight: Sequence[Any] = ()) -> None:
        if self._format.goals:
            self._hindsight.append(hindsight)
        within = not (any_true(record.first) or any_true(record.last))
        within = within and np.count_nonzero(record.discount) == len(record.discount)
        self._timesteps_within = self._timesteps_within + 1 if within else 0
        super().append_with(record, (), hindsight)

    def _all_reached(self) -> bool:
        """Returns True if no episode started or ended in the newest windows, so that all of them are complete.

        This is the usual case.  Computing the masks instead would take about 15 µs more per timestep, as much as all
        other work outside of Reverb.
        """
        return self._timesteps_within > self._format.length
