"""Reverb tables: queues and replay tables, with sizes and rate limits."""

import dataclasses
import math
from typing import Any

import reverb

from ..data import Layout
from ..errors import CallboardError


def queue_table(name: str, signature: Any, items_per_batch: int, batches: int = 2) -> reverb.Table:
    """A first-in-first-out table from which every item is read once.

    The table holds `batches` whole batches, and at least two items more than one batch; with fewer, actors and learner
    would wait for each other.  A longer queue lets actors run further ahead of the learner, with older weights.

    Args:
      name: the table's name.
      signature: `tf.TensorSpec` nest of one item.
      items_per_batch: items that the learner reads for one batch.
      batches: maximum number of batches in the queue.
    """
    size = max(items_per_batch * batches, items_per_batch + 2)
    return reverb.Table.queue(name, max_size=size, signature=signature)


@dataclasses.dataclass(frozen=True)
class ReplayLimits:
    """Size of a replay over all shards, and how often its items are sampled.

    Attributes:
      size: maximum number of items; the oldest are evicted.
      min_size: items in replay before learning begins.
      samples_per_insert: average number of times that an item is sampled.  Actors wait for the learner, or vice versa.
      error_buffer: samples by which the learner may run ahead or behind; None for a tenth of the samples allowed by
        `min_size` inserts, but at least what a batch and a timestep require.
    """

    size: int
    min_size: int
    samples_per_insert: float
    error_buffer: float | None = None

    def check(self, layout: Layout, batch_size: int, updates_per_call: int = 1) -> None:
        """Checks that the limits can work.

        Args:
          layout: the run's layout.
          batch_size: items in a global batch.
          updates_per_call: batches that are sampled at once.

        Raises:
          CallboardError: the limits cannot work; the message names one of the agent's fields `batch_size`,
            `replay.size`, `replay.min_size`, `replay.samples_per_insert` and `replay.error_buffer`.
        """
        if batch_size < 1 or batch_size % layout.replicas:
            raise CallboardError(
                f"a batch of {batch_size} items cannot be shared by {layout.replicas} learner devices: "
                f"make agent.batch_size a multiple of {layout.replicas}"
            )
        if self.size < batch_size * layout.shards:
            raise CallboardError(
                f"a replay of {self.size} items in {layout.shards} shard(s) is smaller than a batch of {batch_size}: "
                f"set agent.replay.size to at least {batch_size * layout.shards}"
            )
        if not layout.shards <= self.min_size <= self.size:
            raise CallboardError(
                f"agent.replay.min_size must lie between {layout.shards} and agent.replay.size ({self.size}), "
                f"not be {self.min_size}"
            )
        if self.min_size >= layout.max_steps:
            raise CallboardError(
                f"learning would never begin: agent.replay.min_size is {self.min_size}, and the run ends after "
                f"max_steps = {layout.max_steps} environment steps"
            )
        if not (self.samples_per_insert > 0 and math.isfinite(self.samples_per_insert)):
            raise CallboardError(f"agent.replay.samples_per_insert must be more than 0, not {self.samples_per_insert}")
        sampled_at_once = batch_size * updates_per_call
        needed = self._needed_buffer(layout, sampled_at_once)
        if self.error_buffer is not None and not self.error_buffer >= needed:  # Also rejects NaN.
            what = "a batch of" if updates_per_call == 1 else f"{updates_per_call} batches, together"
            raise CallboardError(
                f"an agent.replay.error_buffer of {self.error_buffer:g} cannot keep {self.samples_per_insert:g} "
                f"samples per insert: actors and learner would wait for each other over {what} {sampled_at_once}; set "
                f"it to at least {math.ceil(needed)}, or leave it out"
            )

    def buffer(self, layout: Layout, sampled_at_once: int) -> float:
        """Returns the error buffer of one shard: `error_buffer`, or its default if that is None.

        Args:
          layout: the run's layout.
          sampled_at_once: items of all batches that are learned from in a call.
        """
        if self.error_buffer is not None:
            return self.error_buffer
        samples = self.samples_per_insert * self.min_size / layout.shards
        return max(0.1 * samples, self._needed_buffer(layout, sampled_at_once))

    def _needed_buffer(self, layout: Layout, sampled_at_once: int) -> float:
        # All environments of an actor may also insert at once.
        return sampled_at_once + self.samples_per_insert * layout.envs_per_actor


def replay_table(
    name: str,
    signature: Any,
    layout: Layout,
    limits: ReplayLimits,
    sampled_at_once: int,
    priority_exponent: float = 0.0,
) -> reverb.Table:
    """Creates one shard of a replay table, sampled by priority or uniformly, with the rate limits of `limits`.

    Args:
      name: the table's name.
      signature: `tf.TensorSpec` nest of one item.
      layout: the run's layout.
      limits: limits over all shards, checked by `ReplayLimits.check`.
      sampled_at_once: items of all batches that are learned from in a call.
      priority_exponent: alpha, items are sampled in proportion to priority^alpha; 0 samples uniformly.
    """
    even = priority_exponent == 0
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Uniform() if even else reverb.selectors.Prioritized(priority_exponent),
        remover=reverb.selectors.Fifo(),
        max_size=limits.size // layout.shards,
        rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
            samples_per_insert=limits.samples_per_insert,
            min_size_to_sample=max(1, limits.min_size // layout.shards),
            error_buffer=float(limits.buffer(layout, sampled_at_once)),
        ),
        signature=signature,
    )
