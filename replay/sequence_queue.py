"""First-in-first-out queue of sequences: each is learned from once, in the order of writing."""

import dataclasses
from collections.abc import Sequence

import reverb
import tensorflow as tf

from ..errors import CallboardError
from .fifo_queue import FifoQueue
from .reading.queue_dataset import queue_dataset
from .replay_protocol import Pace, ReplayDataset
from .servers.handle import ReplayHandle
from .servers.tables import queue_table
from .writing.sequences import SequenceWriter, sequence_signature


@dataclasses.dataclass(frozen=True)
class SequenceQueue(FifoQueue):
    """A queue of sequences for agents that learn from each sequence once (IMPALA, PPO).

    An item holds the sequences of all environments of an actor.

    Attributes:
      length: transitions in a sequence (T).
      batch_size: sequences in a learner step, over all replicas.
      batches: maximum number of batches in the queue; a longer queue means older behavior policies.
      updates_per_call: batches that one element of the dataset holds, stacked along a first axis if more than one.
      max_policy_lag: learner steps by which actors may run ahead, see `Pace`; None for no limit.  With a limit, each
        learner has a separate queue, sequences share no observations, and an element of the dataset has `element_size`
        sequences, fewer than a replica's share.
      stack: number of most recent images that the network sees; each image is stored once.
      returns_discount: γ of the discounted returns that items store, see `Sample.discounted_return`; None for none.
    """

    length: int
    batch_size: int
    batches: int = 1
    updates_per_call: int = 1
    max_policy_lag: int | None = None
    stack: int = 1
    returns_discount: float | None = None

    @property
    def pace(self) -> Pace | None:
        if self.max_policy_lag is None:
            return None
        environments = self.layout.actors * self.layout.envs_per_actor
        return Pace(self.max_policy_lag, self.length, items_per_actor=self.batch_size // environments)

    @property
    def element_size(self) -> int:
        """Sequences in an element of the dataset: a replica's share, or with a limit on the policy lag fewer."""
        share = self.batch_size // self.layout.replicas
        return share if self.max_policy_lag is None else min(self.layout.envs_per_actor, share)

    def check(self) -> None:
        super().check()
        layout = self.layout
        items_per_batch(self.batch_size, layout.envs_per_actor, layout.replicas, self.updates_per_call)

    def tables(self) -> list[reverb.Table]:
        envs = self.layout.envs_per_actor
        signature = sequence_signature(self.layout, self.length, envs, self.stack, self._repeats, self._keeps_returns)
        items = max(1, int(self._items_per_step / self._tables))
        # With a limit on the lag, other actors may contribute for one that is away, also to another shard.
        size = self.per_shard(items * self.batches) if self.pace is None else max(items * self.batches, items + 2)
        return [queue_table(self._table(number), signature, size) for number in range(self._tables)]

    def writer(self, replay: ReplayHandle, actor: int) -> SequenceWriter:
        # With a limit on the policy lag, the last observation of a sequence is written again as the first of the next.
        period = self.length + self._repeats
        table = self._table(self.layout.learner_of(actor))
        return SequenceWriter(
            replay,
            self.layout,
            table,
            self.length,
            period,
            shard=self.layout.shard_of(actor),
            waits_for_room=self.pace is None,
            stack=self.stack,
            returns_discount=self.returns_discount,
        )

    def dataset(self, replay: ReplayHandle, input_context: tf.distribute.InputContext) -> ReplayDataset:
        number = input_context.input_pipeline_id % self._tables
        table = self._table(number)
        dataset = queue_dataset(
            replay,
            self.layout,
            table,
            self.length,
            self.element_size,
            self._shards_of(number),
            updates_per_call=self.updates_per_call,
            stack=self.stack,
            repeats=self._repeats,
            keeps_returns=self._keeps_returns,
        )
        return ReplayDataset(dataset, table, self.updates_per_call * self._items_per_step / self._tables)

    @property
    def _items_per_step(self) -> float:
        """Items that all learners together take for one learner step; less than 1 if several steps share an item."""
        return self.batch_size / self.layout.envs_per_actor

    @property
    def _repeats(self) -> bool:
        """Whether the last observation of a sequence is written again, as the first of the next."""
        return self.max_policy_lag is not None

    @property
    def _keeps_returns(self) -> bool:
        return self.returns_discount is not None

    @property
    def _tables(self) -> int:
        return 1 if self.max_policy_lag is None else self.layout.learners

    def _shards_of(self, number: int) -> Sequence[int]:
        """Returns the shards on which the table of this number is written to."""
        if self._tables == 1:
            return range(self.layout.shards)
        actors = (actor for actor in range(self.layout.actors) if self.layout.learner_of(actor) == number)
        return sorted({self.layout.shard_of(actor) for actor in actors})

    def _table(self, number: int) -> str:
        return "queue" if self._tables == 1 else f"queue_{number}"


def items_per_batch(batch_size: int, envs_per_item: int, replicas: int, updates_per_call: int = 1) -> float:
    """Returns the number of items of `envs_per_item` sequences in a global batch of `batch_size` sequences.

    Raises:
      CallboardError: the batch cannot be shared evenly by the replicas, or a replica's share of the batches of a call
        cannot be formed from whole items.
    """
    if batch_size % replicas:
        raise CallboardError(
            f"a batch of {batch_size} sequences cannot be shared by {replicas} learner devices: "
            f"make agent.batch_size a multiple of {replicas}"
        )
    share = batch_size // replicas
    if share % envs_per_item and envs_per_item % share:
        forms = [
            size * replicas
            for size in range(1, share + envs_per_item + 1)
            if size % envs_per_item == 0 or envs_per_item % size == 0
        ]
        lower = max((size for size in forms if size < batch_size), default=None)
        upper = min(size for size in forms if size > batch_size)
        raise CallboardError(
            f"a batch of {batch_size} sequences cannot be formed from items of {envs_per_item} environments "
            f"for {replicas} learner device(s): set agent.batch_size to "
            + (f"{upper}" if lower is None else f"{lower} or {upper}")
        )
    at_once = share * updates_per_call
    if at_once % envs_per_item and envs_per_item % at_once:
        raise CallboardError(
            f"{updates_per_call} batches of {share} sequences for each learner device cannot be formed from items of "
            f"{envs_per_item} environments: make agent.updates_per_call a multiple of {envs_per_item // share}"
        )
    return batch_size / envs_per_item
