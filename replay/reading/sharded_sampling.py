"""Sampling from all replay shards as if they were one, even while some of them are down."""

import collections
import contextlib
import time
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
import tree

from ...data import Sample
from ...runtime.deadlines import Deadline
from ..servers.handle import ReplayHandle
from ..writing.item_format import ItemFormat
from .batch_reader import BatchReader
from .demonstrations import DEMONSTRATIONS, with_demonstrations
from .elements import Elements, rebuilt_if_changed
from .read_ahead import read_ahead, split_batches
from .sampling import SampledItems, SampledTable, sampled_items_spec, shard_dataset
from .whole_batches import AwayShards, WeightLookUp, chosen_of

_PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 0.05


def sampled_dataset(
    replay: ReplayHandle,
    item_format: ItemFormat,
    table: str,
    replica_batch: int,
    priority_exponent: float = 0.0,
    updates_per_call: int = 1,
    demonstrations: int = 0,
    weighted: bool = False,
) -> tf.data.Dataset:
    """Returns a dataset of `Sample` with `info`, in batches of `replica_batch` items.

    Where an item has several windows, `item_format.together` samples of it are chosen, see `whole_batches`.

    An item is sampled with probability P(shard) p(item | shard), where P(shard) is the shard's fraction of the priority
    mass of all shards that respond.

    Args:
      replay: handle of the replay to read from.
      item_format: format of the items.
      table: the table's name.
      replica_batch: samples in a replica's share of a batch.
      priority_exponent: the table's exponent, see `tables.replay_table`.
      updates_per_call: batches in an element of the dataset, stacked along a first axis if more than one.
      demonstrations: samples of a replica's share that are from the table of demonstrations, the last ones.
      weighted: whether items have several windows with priorities of their own.
    """
    together, shards = item_format.together, item_format.layout.shards
    away = AwayShards()
    look_up = WeightLookUp(replay, away) if weighted else None

    def sampled_from(name: str, samples: int, away: AwayShards | None = None) -> tf.data.Dataset:
        one = SampledTable(
            replay,
            name,
            item_format.signature(),
            priority_exponent,
            windows=item_format.windows,
            counts=item_format.has_weights and not weighted,
        )
        if shards == 1:
            return shard_dataset(one, 0, samples // together, updates_per_call)
        return sharded_dataset(one, shards, samples // together, updates_per_call, away)

    sampled = sampled_from(table, replica_batch - demonstrations, away)
    if demonstrations:
        sampled = with_demonstrations(sampled, sampled_from(DEMONSTRATIONS, demonstrations), updates_per_call)

    @tf.autograph.experimental.do_not_convert
    def read(batch: SampledItems) -> Sample:
        if item_format.has_weights:
            batch = chosen_of(batch, item_format, look_up)
        goal = (batch.goal,) if item_format.goals else ()
        sample = item_format.read(batch.item, *goal)._replace(info=batch.info)
        return sample if updates_per_call == 1 else split_batches(sample, updates_per_call)

    return read_ahead(sampled.map(read), 1)


def sharded_dataset(
    table: SampledTable,
    shards: int,
    batch: int,
    updates_per_call: int = 1,
    away: AwayShards | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of `SampledItems` from all shards, `updates_per_call` batches of `batch` items per element.

    Probabilities and numbers of items are relative to all shards.  Each batch of an element is sampled separately.
    """
    block = max(1, batch // shards)

    def reader(shard: int) -> BatchReader:
        return BatchReader(
            rebuilt_if_changed(
                lambda: Elements(shard_dataset(table, shard, block)), key=lambda: table.replay.address(shard)
            ),
            stopped=lambda: False,
            incarnation=lambda: table.replay.incarnation(shard),
        )

    def generate() -> Iterator[SampledItems]:
        sampler = ShardedSampler([reader(shard) for shard in range(shards)], batch, away)
        with contextlib.closing(sampler):
            while True:
                yield concatenated([sampler.sample() for _ in range(updates_per_call)])

    return tf.data.Dataset.from_generator(
        generate, output_signature=sampled_items_spec(table.signature, updates_per_call * batch)
    )


class ShardedSampler:
    """Assembles batches from blocks of several shards.

    Each shard contributes to a batch in proportion to its priority mass; rounding is random, so that the proportions
    are exact on average.  A shard that does not deliver its part within `patience` seconds is left out, with its mass
    and items, until it delivers again.

    Args:
      readers: readers of `SampledItems` blocks, one for each shard.
      batch: items in a batch.
      away: shards for which a batch does not wait.  One that is left out is added.
      patience: seconds that a batch waits for a shard; 5 by default.
    """

    def __init__(
        self,
        readers: Sequence[BatchReader],
        batch: int,
        away: AwayShards | None = None,
        patience: float = _PATIENCE_SECONDS,
    ):
        self._away = AwayShards() if away is None else away
        self._shards = [_Shard(index, reader) for index, reader in enumerate(readers)]
        self._batch = batch
        self._patience = patience
        self._begun = False
        self._rng = np.random.default_rng()

    def sample(self) -> SampledItems:
        """Returns the next batch, with arrays `[B, ...]` as leaves; waits until at least one shard delivers."""
        if not self._begun:
            deadline = Deadline(self._patience)
            for shard in self._shards:
                shard.buffer(1, deadline)
            self._begun = True
        while True:
            for shard in self._shards:
                if not shard.present and shard.receive(0.0):
                    self._away.discard(shard.index)
            present = [shard for shard in self._shards if shard.present]
            if not present:
                time.sleep(_POLL_SECONDS)
                continue
            masses = np.array([shard.mass for shard in present])
            if not masses.sum() > 0:
                masses = np.ones(len(present))
            parts = split_batch(self._batch, masses, self._rng.random())
            deadline = Deadline(self._patience)
            for shard, part in zip(present, parts, strict=True):
                shard.present = shard.buffer(part, Deadline(0.0) if shard.index in self._away else deadline)
                if not shard.present:
                    self._away.add(shard.index)
            if all(shard.present for shard in present):
                return self._assemble(present, parts, masses / masses.sum())

    def close(self) -> None:
        for shard in self._shards:
            shard.reader.close()

    def _assemble(self, shards: list["_Shard"], parts: np.ndarray, shares: np.ndarray) -> SampledItems:
        """Returns a batch of buffered items, with probabilities and numbers relative to all given shards."""
        blocks: list[SampledItems] = []
        items = sum(shard.items for shard in shards)
        for shard, part, share in zip(shards, parts, shares, strict=True):
            for block in shard.remove(part):
                info = block.info._replace(
                    probability=share * block.info.probability, items=np.full_like(block.info.items, items)
                )
                blocks.append(block._replace(info=info))
        return concatenated(blocks)


def concatenated(blocks: Sequence[SampledItems]) -> SampledItems:
    """Concatenates items, as arrays."""
    return blocks[0] if len(blocks) == 1 else tree.map_structure(lambda *leaves: np.concatenate(leaves), *blocks)


def split_batch(batch: int, masses: np.ndarray, offset: float) -> np.ndarray:
    """Splits a batch in proportion to `masses`, int `[S]`; exact on average over a uniform `offset` in [0, 1)."""
    borders = np.floor(batch * np.cumsum(masses) / np.sum(masses) + offset)
    # Sums of floats may be slightly less than the total.
    borders[-1] = batch
    return np.diff(borders, prepend=0).astype(np.int64)


class _Shard:
    """Buffered items of one shard."""

    def __init__(self, index: int, reader: BatchReader):
        self.index = index
        self.reader = reader
        self.present = False
        """Whether the shard has delivered recently."""
        self.mass = 0.0
        self.items = 0
        self._blocks: collections.deque[SampledItems] = collections.deque()
        self._count = 0

    def buffer(self, count: int, deadline: Deadline) -> bool:
        """Waits until `count` items are buffered; returns False if they are not by the deadline."""
        while self._count < count:
            if not self.receive(deadline.left) and deadline.has_passed:
                return False
        return True

    def receive(self, timeout: float) -> bool:
        """Buffers the next block if it arrives within `timeout` seconds; returns whether it did."""
        block = self.reader.poll(timeout)
        if block is None:
            return False
        block = tree.map_structure(np.asarray, block)
        self._blocks.append(block)
        self._count += len(block.mass)
        self.mass = float(np.mean(block.mass))
        self.items = int(block.info.items[-1])
        self.present = True
        return True

    def remove(self, count: int) -> Iterator[SampledItems]:
        """Removes the next `count` items from the buffer and yields them, in blocks."""
        while count:
            block = self._blocks.popleft()
            size = len(block.mass)
            if size > count:
                self._blocks.appendleft(_cut(block, slice(count, None)))
                block, size = _cut(block, slice(count)), count
            count -= size
            self._count -= size
            yield block


def _cut(block: SampledItems, part: slice) -> SampledItems:
    return tree.map_structure(lambda leaf: leaf[part], block)
