"""Shared base of transition and sequence replay, whose items are sampled many times, by priority or uniformly."""

import abc
import dataclasses
import math

import reverb
import tensorflow as tf
import tree

from ..data import Layout
from ..errors import CallboardError
from ..settings.replay_settings import ReplaySettings
from .reading.demonstrations import DEMONSTRATIONS, demonstration_table, demonstrations_in, of_played
from .reading.sharded_sampling import sampled_dataset
from .reading.whole_batches import chosen_number
from .replay_protocol import ReplayDataset, Writer
from .servers.handle import ReplayHandle
from .servers.tables import replay_table
from .servers.window_weights import SetPriorities, WindowWeights
from .writing.item_format import ItemFormat
from .writing.item_writer import Priority

TABLE = "replay"


@dataclasses.dataclass(frozen=True)
class SampledReplay(abc.ABC):
    """A replay of items of single environments, or of whole batches, in both of which each has its own priority.

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

    @property
    def catches_up(self) -> bool:
        """Whether learner steps and items keep to a ratio, from which no error buffer lets them deviate."""
        return self.settings.error_buffer is None

    @property
    def is_queue(self) -> bool:
        return False

    @property
    def window(self) -> int:
        """Transitions of an item that does not end with its episode."""
        return 1

    def check(self) -> None:
        self.settings.check(self.layout, self.batch_size, self.updates_per_call, self.window)
        demonstrations_in(self.settings, self.layout, self.batch_size)
        if self.relabels_goals and self.settings.demonstration_share:
            raise CallboardError(
                "windows of a demonstration_share are sampled without further goals: set agent.replay.hindsight.goals "
                "or agent.replay.demonstration_share to 0"
            )
        number, share = self.settings.sampled_together, self.batch_size // self.layout.replicas
        if number is None or number == 1:
            return
        if self.settings.demonstration_share:
            raise CallboardError(
                "a replay with a demonstration_share takes samples one by one: set agent.replay.sampled_together to 1, "
                f"not {number}"
            )
        if number > self.layout.envs_per_actor or share % number:
            raise CallboardError(
                f"agent.replay.sampled_together must be at most envs_per_actor ({self.layout.envs_per_actor}) and "
                f"divide the {share} samples of a learner device, not be {number}"
            )

    @property
    def together(self) -> int:
        """Number of samples that are taken of an item at a time; 1 for items of single environments."""
        if self.settings.demonstration_share:
            return 1
        if self.settings.sampled_together is not None:
            return self.settings.sampled_together
        single = tree.flatten(self.format_of(1).signature())
        item_bytes = sum(math.prod(leaf.shape) * leaf.dtype.size for leaf in single)
        return chosen_number(item_bytes, self.batch_size // self.layout.replicas, self.layout.envs_per_actor)

    @property
    def may_weigh_windows(self) -> bool:
        """Whether windows in items of several may have priorities of their own; known without the record."""
        prioritized = self.priority_exponent > 0 or self.first_priority is not None
        together = self.settings.sampled_together != 1 and not self.settings.demonstration_share
        return prioritized and (self.relabels_goals or (together and self.layout.envs_per_actor > 1))

    @property
    def relabels_goals(self) -> bool:
        """Whether windows are also sampled with further goals, so that writers need `Layout.goal_rewards`."""
        return self.settings.hindsight.goals > 0

    @property
    def _weighs_windows(self) -> bool:
        return self.may_weigh_windows and self.item_format.has_weights

    def window_weights(self, set_priorities: SetPriorities) -> WindowWeights | None:
        """Returns the store of the weights of windows in a shard's items of whole batches; None if they do not change.

        Args:
          set_priorities: sets priorities of the shard's items.
        """
        if not self._weighs_windows:
            return None
        (table,) = self.tables()
        return WindowWeights(
            TABLE, self.item_format.windows, table.info.max_size, self.priority_exponent, set_priorities
        )

    @property
    def _demonstrations(self) -> int:
        return demonstrations_in(self.settings, self.layout, self.batch_size)

    def table_of(self, actor: int) -> str:
        """Returns the table that an actor writes to, or a feeder, whose index is beyond those of all actors."""
        return DEMONSTRATIONS if self.settings.demonstration_share and actor >= self.layout.actors else TABLE

    def tables(self) -> list[reverb.Table]:
        signature, layout, settings = self.item_format.signature(), self.layout, self.settings
        number, samples = self._demonstrations, self.batch_size // layout.replicas
        further = []
        if number:
            further.append(demonstration_table(signature, layout, settings, number, samples, self._exponent))
            settings = of_played(settings, number, samples)
        sampled_at_once = self.updates_per_call * (samples - number) * layout.replicas
        return [
            replay_table(TABLE, signature, layout, settings, sampled_at_once, self._exponent, together=self.together),
            *further,
        ]

    def dataset(self, replay: ReplayHandle, input_context: tf.distribute.InputContext) -> ReplayDataset:
        number, samples = self._demonstrations, self.batch_size // self.layout.replicas
        dataset = sampled_dataset(
            replay,
            self.item_format,
            TABLE,
            replica_batch=samples,
            updates_per_call=self.updates_per_call,
            priority_exponent=self._exponent,
            demonstrations=number,
            weighted=self._weighs_windows,
        )
        played = (samples - number) * self.layout.replicas
        further = (DEMONSTRATIONS,) if number else ()
        return ReplayDataset(dataset, TABLE, self.updates_per_call * played / self.together, further)

    @property
    def item_format(self) -> ItemFormat:
        """The storage format of items."""
        return self.format_of(self.together)

    @abc.abstractmethod
    def format_of(self, together: int) -> ItemFormat:
        """Returns the storage format of items of which so many samples are taken at a time; 1 for single ones."""

    @property
    def _exponent(self) -> float:
        # The priority of an item of several windows is the sum of their weights.
        return 1.0 if self.item_format.has_weights else self.priority_exponent

    @abc.abstractmethod
    def writer(self, replay: ReplayHandle, actor: int) -> Writer:
        """Creates the writer of the actor with index `actor`."""
