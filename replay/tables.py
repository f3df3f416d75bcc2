"""Reverb tables, sized from what goes through them."""

import dataclasses
import math
from typing import Any

import reverb

from ..data import CallboardError, Layout


def queue_table(name: str, signature: Any, items_per_batch: int, batches: int = 2) -> reverb.Table:
    """A first-in-first-out table from which every item is read once.

    It holds `batches` whole batches, and at least two items more than one batch needs: with fewer, actors and learner
    would wait for each other.  A longer queue lets actors run further ahead of the learner, on older weights.

    Args:
      name: the table's name.
      signature: `tf.TensorSpec` nest of one item.
      items_per_batch: items that the learner reads for one batch.
      batches: batches that may wait.
    """
    size = max(items_per_batch * batches, items_per_batch + 2)
    return reverb.Table.queue(name, max_size=size, signature=signature)


@dataclasses.dataclass(frozen=True)
class ReplayLimits:
    """How much a replay holds over all of its shards, and how often it is drawn from.

    Attributes:
      size: items; the oldest make room for new ones.
      min_size: items that must be there before learning begins.
      samples_per_insert: times that an item is drawn, on average.  Actors wait for the learner, or it for them.
      error_buffer: items that may be drawn too many or too few; None for a tenth of those drawn for `min_size` inserts,
        and at least what a batch and a timestep need.
    """

    size: int
    min_size: int
    samples_per_insert: float
    error_buffer: float | None = None

    def check(self, layout: Layout, batch_size: int, updates_per_call: int = 1) -> None:
        """Refuses limits that cannot work.

        Args:
          layout: of the run.
          batch_size: items in a global batch.
          updates_per_call: batches that are drawn at once.

        Raises:
          CallboardError: naming the agent's fields `replay_size`, `min_replay_size`, `samples_per_insert`,
            `error_buffer` and `batch_size`.
        """
        if batch_size < 1 or batch_size % layout.replicas:
            raise CallboardError(
                f"a batch of {batch_size} items cannot be shared by {layout.replicas} learner devices: "
                f"make agent.batch_size a multiple of {layout.replicas}"
            )
        if self.size < batch_size * layout.shards:
            raise CallboardError(
                f"a replay of {self.size} items in {layout.shards} shard(s) is smaller than a batch of {batch_size}: "
                f"set agent.replay_size to at least {batch_size * layout.shards}"
            )
        if not layout.shards <= self.min_size <= self.size:
            raise CallboardError(
                f"agent.min_replay_size must lie between {layout.shards} and agent.replay_size ({self.size}), "
                f"not be {self.min_size}"
            )
        if self.min_size >= layout.max_steps:
            raise CallboardError(
                f"learning would never begin: agent.min_replay_size is {self.min_size}, and the run ends after "
                f"max_steps = {layout.max_steps} environment steps"
            )
        if not (self.samples_per_insert > 0 and math.isfinite(self.samples_per_insert)):
            raise CallboardError(f"agent.samples_per_insert must be more than 0, not {self.samples_per_insert}")
        sampled_at_once = batch_size * updates_per_call
        needed = self._needed_buffer(layout, sampled_at_once)
        if self.error_buffer is not None and not self.error_buffer >= needed:  # Nor is NaN.
            what = "a batch of" if updates_per_call == 1 else f"{updates_per_call} batches, together"
            raise CallboardError(
                f"an agent.error_buffer of {self.error_buffer:g} cannot keep {self.samples_per_insert:g} samples per "
                f"insert: actors and learner would wait for each other over {what} {sampled_at_once}; set it to at "
                f"least {math.ceil(needed)}, or leave it out"
            )

    def buffer(self, layout: Layout, sampled_at_once: int) -> float:
        """`error_buffer`, or what takes its place where it is None; of one shard.

        Args:
          layout: of the run.
          sampled_at_once: items of all batches that are learned from in a call.
        """
        if self.error_buffer is not None:
            return self.error_buffer
        drawn = self.samples_per_insert * self.min_size / layout.shards
        return max(0.1 * drawn, self._needed_buffer(layout, sampled_at_once))

    def _needed_buffer(self, layout: Layout, sampled_at_once: int) -> float:
        # All environments of an actor may insert at once, too.
        return sampled_at_once + self.samples_per_insert * layout.envs_per_actor


def replay_table(
    name: str,
    signature: Any,
    layout: Layout,
    limits: ReplayLimits,
    sampled_at_once: int,
    priority_exponent: float = 0.0,
) -> reverb.Table:
    """One shard of a table whose items are drawn by priority, or evenly, as often as `limits` says.

    Args:
      name: the table's name.
      signature: `tf.TensorSpec` nest of one item.
      layout: of the run.
      limits: over all shards, checked by `ReplayLimits.check`.
      sampled_at_once: items of all batches that are learned from in a call.
      priority_exponent: alpha, items are drawn in proportion to priority^alpha; 0 draws them evenly.
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
