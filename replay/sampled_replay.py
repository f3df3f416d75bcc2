"""Shared base of transition and sequence replay, whose items are sampled many times, by priority or uniformly."""

import abc
import dataclasses
from typing import Any

import reverb
import tensorflow as tf

from ..data import Layout, Nest, Sample
from .handle import ReplayHandle
from .item_writer import Priority
from .per_environment_writers import ReplayItem
from .replay_protocol import ReplayDataset, Writer
from .sharded_sampling import sampled_dataset
from .tables import ReplayLimits, replay_table

TABLE = "replay"


@dataclasses.dataclass(frozen=True)
class SampledReplay(abc.ABC):
    """A replay of items of single environments, each with its own priority.

    Attributes:
      layout: the run's layout; only `check` works without record and state.
      limits: number of items over all shards, and how often each is sampled.
      batch_size: items in a learner step, over all replicas.
      updates_per_call: batches that one element of the dataset holds, concatenated.
      priority_exponent: alpha, items are sampled in proportion to priority^alpha; 0 samples uniformly.
      first_priority: computes initial priorities; None sets all of them to 1.
      stack: number of most recent images that the network sees; each image is stored once.
    """

    layout: Layout
    limits: ReplayLimits
    batch_size: int
    updates_per_call: int = 1
    priority_exponent: float = 0.0
    first_priority: Priority | None = None
    stack: int = 1

    @property
    def pace(self) -> None:
        """None: only the tables' rate limiters hold actors back."""
        return None

    def check(self) -> None:
        self.limits.check(self.layout, self.batch_size, self.updates_per_call)

    def tables(self) -> list[reverb.Table]:
        sampled_at_once = self.updates_per_call * self.batch_size
        return [
            replay_table(TABLE, self.signature(), self.layout, self.limits, sampled_at_once, self.priority_exponent)
        ]

    def dataset(self, replay: ReplayHandle, input_context: tf.distribute.InputContext) -> ReplayDataset:
        dataset = sampled_dataset(
            replay,
            self.layout,
            TABLE,
            self.signature(),
            read=self.read,
            replica_batch=self.batch_size // self.layout.replicas,
            updates_per_call=self.updates_per_call,
            priority_exponent=self.priority_exponent,
        )
        return ReplayDataset(dataset, TABLE, self.updates_per_call * self.batch_size)

    @abc.abstractmethod
    def signature(self) -> ReplayItem:
        """Returns the `tf.TensorSpec` nest of one item."""

    @abc.abstractmethod
    def read(self, item: ReplayItem) -> Sample:
        """Converts a batch of items `[B, ...]` to a time-major `Sample`."""

    @abc.abstractmethod
    def writer(self, replay: ReplayHandle, actor: int) -> Writer:
        """Creates the writer of the actor with index `actor`."""


def unchanged(state: Nest) -> Any:
    """Returns the recurrent state unchanged."""
    return state
