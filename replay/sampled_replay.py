"""Shared base of transition and sequence replay, whose items are sampled many times, by priority or uniformly."""

import abc
import dataclasses

import reverb
import tensorflow as tf

from ..data import Layout
from ..replay_settings import ReplaySettings
from .item_format import ItemFormat
from .reading.sharded_sampling import sampled_dataset
from .replay_protocol import ReplayDataset, Writer
from .servers.handle import ReplayHandle
from .servers.tables import replay_table
from .writing.item_writer import Priority

TABLE = "replay"


@dataclasses.dataclass(frozen=True)
class SampledReplay(abc.ABC):
    """A replay of items of single environments, each with its own priority.

    Attributes:
      layout: the run's layout; only `check` works without record and state.
      settings: number of items over all shards, and how often each is sampled.
      batch_size: items in a learner step, over all replicas.
      updates_per_call: batches that one element of the dataset holds, stacked along a first axis if more than one.
      priority_exponent: alpha, items are sampled in proportion to priority^alpha; 0 samples uniformly.
      first_priority: computes initial priorities; None sets all of them to 1.
      stack: number of most recent images that the network sees; each image is stored once.
      returns_discount: γ of the discounted returns that items store, see `Sample.discounted_return`; None for none.
    """

    layout: Layout
    settings: ReplaySettings
    batch_size: int
    updates_per_call: int = 1
    priority_exponent: float = 0.0
    first_priority: Priority | None = None
    stack: int = 1
    returns_discount: float | None = None

    @property
    def pace(self) -> None:
        """None: only the tables' rate limiters hold actors back."""
        return None

    def check(self) -> None:
        self.settings.check(self.layout, self.batch_size, self.updates_per_call)

    def tables(self) -> list[reverb.Table]:
        sampled_at_once = self.updates_per_call * self.batch_size
        signature = self.item_format.signature()
        return [replay_table(TABLE, signature, self.layout, self.settings, sampled_at_once, self.priority_exponent)]

    def dataset(self, replay: ReplayHandle, input_context: tf.distribute.InputContext) -> ReplayDataset:
        dataset = sampled_dataset(
            replay,
            self.item_format,
            TABLE,
            replica_batch=self.batch_size // self.layout.replicas,
            updates_per_call=self.updates_per_call,
            priority_exponent=self.priority_exponent,
        )
        return ReplayDataset(dataset, TABLE, self.updates_per_call * self.batch_size)

    @property
    @abc.abstractmethod
    def item_format(self) -> ItemFormat:
        """The storage format of items."""

    @abc.abstractmethod
    def writer(self, replay: ReplayHandle, actor: int) -> Writer:
        """Creates the writer of the actor with index `actor`."""
