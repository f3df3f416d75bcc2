"""Storage format of items of single environments: what writers store, tables expect and readers unpack."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ...data import Layout, Nest, Record, Sample
from ...specs import ACHIEVED
from ..packing import Packing
from ..stacking import is_frame, stack_rows
from .batch_writers import ReplayItem
from .hindsight import Hindsight


class Row(NamedTuple):
    """The data of one timestep in replay."""

    age: Any
    """int32, timesteps since the start of the episode or of the writer."""
    record: Record
    """The record, without extras if only initial priorities need them."""
    discounted_return: Any = ()
    """float32, see `Sample.discounted_return`; `()` unless replay keeps it."""
    weight: Any = ()
    """float32, in items of several windows: what ends with this timestep is sampled in proportion to it, as long as its
    priority is the first, and never if it is 0; `[1 + k]` with k further goals; `()` in items of single windows."""
    hindsight: Any = ()
    """`Hindsight` of the window that begins at this timestep; `()` without further goals."""


@dataclasses.dataclass(frozen=True)
class ItemFormat(abc.ABC):
    """One column of bytes for all data of a timestep, and optionally one for the recurrent state of the first one.

    Attributes:
      layout: contains the specs of the record and the recurrent state.
      length: transitions in an item.
      stack: number of frames that the network sees; every frame is stored once.
      keep_extras: whether replay stores the policy's extras; otherwise they only serve to compute initial priorities.
      stored_state: selects the part of the recurrent state of its first timestep that an item stores; None for none.
      returns_discount: γ of the discounted returns that items store; None for none.
      together: 1 for items of single environments; otherwise an item holds the windows or sequences of an actor's whole
        batch, of which so many are sampled at a time, see `reading.whole_batches`.
      goals: k, the further goals that each window in an item can be sampled with, each like a window of its own.
    """

    layout: Layout
    length: int
    stack: int = 1
    keep_extras: bool = False
    stored_state: Callable[[Nest], Nest] | None = None
    returns_discount: float | None = None
    together: int = 1
    goals: int = 0

    @abc.abstractmethod
    def read(self, item: ReplayItem, goal: tf.Tensor | None = None) -> Sample:
        """Converts a batch of items of single environments to a time-major `Sample`.

        Args:
          item: leaves `[B, ...]`.
          goal: int32 `[B]`, the goal that each is to have: 0 for the one that was played for, or else one of the
            further ones, from 1 on; None if there are none.
        """

    @property
    def windows(self) -> int:
        """Windows in an item, of which some are chosen: of all environments if it is of a whole batch, by goals."""
        return (1 + self.goals) * (1 if self.together == 1 else self.layout.envs_per_actor)

    @property
    def has_weights(self) -> bool:
        """Whether an item has several windows, each with a weight."""
        return self.together > 1 or self.goals > 0

    @functools.cached_property
    def rows(self) -> Packing:
        """Packs the data of a timestep."""
        number = tf.TensorSpec((), tf.float32)
        weight = number
        hindsight: Any = ()
        if self.goals:
            weight, counted = tf.TensorSpec((1 + self.goals,), tf.float32), (self.goals, self.length)
            goal = self.layout.record.observation[ACHIEVED]
            hindsight = Hindsight(
                tf.TensorSpec((self.goals, *goal.shape), goal.dtype),
                tf.TensorSpec(counted, tf.float32),
                tf.TensorSpec(counted, tf.uint8),
            )
        return Packing(self._row(tf.TensorSpec((), tf.int32), self.layout.record, number, weight, hindsight))

    @functools.cached_property
    def state(self) -> Packing | None:
        """Packs the stored part of the recurrent state; None if items store none."""
        leaves = self.state_leaves(self.layout.state)
        return Packing(self.stored_state(self.layout.state)) if self.stored_state and leaves else None

    @functools.cached_property
    def _kept(self) -> list[int]:
        return leaf_indices(self.layout.record, lambda record: self._row((), record))

    def row_leaves(
        self,
        age: np.ndarray,
        leaves: Sequence[Any],
        discounted_return: Any = (),
        weight: Any = (),
        hindsight: Sequence[Any] = (),
    ) -> list[Any]:
        """Returns the leaves of a `Row`, given the leaves of a record."""
        row = [age, *[leaves[index] for index in self._kept]]
        if self.returns_discount is not None:
            row.append(discounted_return)
        if self.has_weights:
            row.append(weight)
        return [*row, *hindsight]

    def state_leaves(self, state: Nest) -> list[Any]:
        """Returns the leaves of the stored part of a recurrent state."""
        return tree.flatten(self.stored_state(state)) if self.stored_state else []

    def signature(self) -> ReplayItem:
        """Returns the `tf.TensorSpec` nest of an item."""
        envs = () if self.together == 1 else (self.layout.envs_per_actor,)
        rows = self.rows.signature(self.length + self.stack, *envs)
        return ReplayItem(rows, self.state.signature(*envs) if self.state else ())

    def weights(self, item: ReplayItem) -> tf.Tensor:
        """Returns the first weights `[N, windows]` in items `[N, length + stack, ...]`, by environment and goal."""
        return tf.reshape(self.rows.unpack(item.rows[:, -1]).weight, (-1, self.windows))

    def hindsight(self, item: ReplayItem) -> Hindsight:
        """Returns the further goals of items of single environments, leaves `[B, k, ...]`."""
        return self.rows.unpack(item.rows[:, self.stack - 1]).hindsight

    def unpack(self, item: ReplayItem) -> Sample:
        """Returns the timesteps of a batch of items, all fields `[length + 1, B, ...]` with stacked frames."""
        age, record, discounted_return, *_ = self.rows.unpack(tf.transpose(item.rows, (1, 0, 2)))
        newest = slice(self.stack - 1, None)
        age, rest = age[newest], cut(record._replace(observation=()), newest)

        def stacked(spec: tf.TensorSpec, leaf: tf.Tensor) -> tf.Tensor:
            return stack_rows(leaf, age, self.stack) if is_frame(spec) else leaf[newest]

        observation = tree.map_structure(stacked, self.layout.record.observation, record.observation)
        return Sample(
            record=rest._replace(observation=observation),
            state=self.state.unpack(item.state) if self.state else (),
            discounted_return=cut(discounted_return, newest),
        )

    def _row(self, age: Any, record: Record, discounted_return: Any = (), weight: Any = (), hindsight: Any = ()) -> Row:
        record = record if self.keep_extras else record._replace(extras=())
        return Row(
            age,
            record,
            () if self.returns_discount is None else discounted_return,
            weight if self.has_weights else (),
            hindsight,
        )


def without_last(nest: Nest) -> Nest:
    """Returns a nest without the last row of each leaf."""
    return cut(nest, slice(None, -1))


def leaf_indices(record: Record, kept: Callable[[Record], Nest]) -> list[int]:
    """Returns the indices of the leaves of `kept(record)` among the leaves of a record."""
    leaves = range(len(tree.flatten(record)))
    return tree.flatten(kept(tree.unflatten_as(record, leaves)))


def cut(nest: Nest, rows: slice) -> Nest:
    """Returns a slice of the rows of all leaves."""
    # Avoid `tree`, which is slow, for single arrays or tensors, as most fields are.
    return nest[rows] if hasattr(nest, "shape") else tree.map_structure(lambda leaf: leaf[rows], nest)
