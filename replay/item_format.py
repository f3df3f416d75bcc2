"""Storage format of items of single environments: what writers store, tables expect and readers unpack."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree

from ..data import Layout, Nest, Record, Sample
from .packing import Packing
from .per_environment_writers import ReplayItem
from .recent_records import cut, leaf_indices
from .stacking import is_frame, stack_rows


class Row(NamedTuple):
    """The data of one timestep in replay."""

    age: Any
    """int32, timesteps since the start of the episode or of the writer."""
    record: Record
    """The record, without extras if only initial priorities need them."""


@dataclasses.dataclass(frozen=True)
class ItemFormat(abc.ABC):
    """One column of bytes for all data of a timestep, and optionally one for the recurrent state of the first one.

    Attributes:
      layout: contains the specs of the record and the recurrent state.
      length: transitions in an item.
      stack: number of frames that the network sees; every frame is stored once.
      keep_extras: whether replay stores the policy's extras; otherwise they only serve to compute initial priorities.
      stored_state: selects the part of the recurrent state of its first timestep that an item stores; None for none.
    """

    layout: Layout
    length: int
    stack: int = 1
    keep_extras: bool = False
    stored_state: Callable[[Nest], Nest] | None = None

    @abc.abstractmethod
    def read(self, item: ReplayItem) -> Sample:
        """Converts a batch of items `[B, ...]` to a time-major `Sample`."""

    @functools.cached_property
    def rows(self) -> Packing:
        """Packs the data of a timestep."""
        return Packing(self._row(tf.TensorSpec((), tf.int32), self.layout.record))

    @functools.cached_property
    def state(self) -> Packing | None:
        """Packs the stored part of the recurrent state; None if items store none."""
        leaves = self.state_leaves(self.layout.state)
        return Packing(self.stored_state(self.layout.state)) if self.stored_state and leaves else None

    @functools.cached_property
    def _kept(self) -> list[int]:
        return leaf_indices(self.layout.record, lambda record: self._row((), record))

    def row_leaves(self, age: np.ndarray, leaves: Sequence[Any]) -> list[Any]:
        """Returns the leaves of a `Row`, given the leaves of a record."""
        return [age, *[leaves[index] for index in self._kept]]

    def state_leaves(self, state: Nest) -> list[Any]:
        """Returns the leaves of the stored part of a recurrent state."""
        return tree.flatten(self.stored_state(state)) if self.stored_state else []

    def signature(self) -> ReplayItem:
        """Returns the `tf.TensorSpec` nest of an item."""
        return ReplayItem(self.rows.signature(self.length + self.stack), self.state.signature() if self.state else ())

    def unpack(self, item: ReplayItem) -> tuple[Record, Nest]:
        """Returns the timesteps of a batch of items, `[length + 1, B, ...]` with stacked frames, and the states."""
        age, record = self.rows.unpack(tf.transpose(item.rows, (1, 0, 2)))
        newest = slice(self.stack - 1, None)
        age, rest = age[newest], cut(record._replace(observation=()), newest)

        def stacked(spec: tf.TensorSpec, leaf: tf.Tensor) -> tf.Tensor:
            return stack_rows(leaf, age, self.stack) if is_frame(spec) else leaf[newest]

        observation = tree.map_structure(stacked, self.layout.record.observation, record.observation)
        return rest._replace(observation=observation), self.state.unpack(item.state) if self.state else ()

    def _row(self, age: Any, record: Record) -> Row:
        return Row(age, record if self.keep_extras else record._replace(extras=()))


def without_last(nest: Nest) -> Nest:
    """Returns a nest without the last row of each leaf."""
    return cut(nest, slice(None, -1))
