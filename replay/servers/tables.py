"""Reverb tables: queues and replay tables, with sizes and rate limits."""

from typing import Any

import reverb

from ...data import Layout
from ...settings.replay_settings import ReplaySettings


def queue_table(name: str, signature: Any, size: int) -> reverb.Table:
    """A first-in-first-out table from which every item is read once.

    Args:
      name: the table's name.
      signature: `tf.TensorSpec` nest of one item.
      size: maximum number of items; with more, actors run further ahead of the learner, with older weights.
    """
    return reverb.Table.queue(name, max_size=size, signature=signature)


def replay_table(
    name: str,
    signature: Any,
    layout: Layout,
    settings: ReplaySettings,
    sampled_at_once: int,
    priority_exponent: float = 0.0,
    together: int = 1,
) -> reverb.Table:
    """Creates one shard of a replay table, sampled by priority or uniformly, with the rate limits of its settings.

    Where items hold whole batches of B environments, the table has a B-th of the items in the settings, and each
    is sampled B / k times as often; items whose priority is the number of samples in them are sampled in proportion.

    Args:
      name: the table's name.
      signature: `tf.TensorSpec` nest of one item.
      layout: the run's layout.
      settings: settings over all shards, checked by `ReplaySettings.check`.
      sampled_at_once: items of all batches that are learned from in a call.
      priority_exponent: alpha, items are sampled in proportion to priority^alpha; 0 samples uniformly.
      together: samples that are taken of an item at a time (k); 1 for items of single environments.
    """
    envs = 1 if together == 1 else layout.envs_per_actor
    even, share = priority_exponent == 0, layout.shards * envs
    samples_per_insert = settings.samples_per_insert * envs / together
    least = max(1, settings.min_size // share)
    even_ratio = samples_per_insert * least
    buffer = settings.buffer(layout, sampled_at_once) / together
    ahead = 0.0 if settings.error_buffer is None else buffer
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Uniform() if even else reverb.selectors.Prioritized(priority_exponent),
        remover=reverb.selectors.Fifo(),
        max_size=max(1, settings.size // share),
        rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
            samples_per_insert=samples_per_insert,
            min_size_to_sample=least,
            error_buffer=(even_ratio - ahead, even_ratio + buffer),
        ),
        signature=signature,
    )
