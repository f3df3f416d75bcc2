"""A fixed share of each batch from recorded episodes, which are in a table of their own.

As in RLPD (Ball et al. 2023, https://arxiv.org/abs/2302.02948) and R2D3 (Paine et al. 2019,
https://arxiv.org/abs/1909.01387): however much has been played since, each batch has as many samples of demonstrations.
"""

import dataclasses
import sys
from typing import Any

import reverb
import tensorflow as tf
import tree

from ...data import Layout
from ...errors import CallboardError
from ...settings.replay_settings import ReplaySettings
from .sampling import SampledItems

DEMONSTRATIONS = "demonstrations"
"""Name of the table."""


def demonstrations_in(settings: ReplaySettings, layout: Layout, batch_size: int) -> int:
    """Returns how many samples of a replica's share of a batch are of demonstrations.

    Raises:
      CallboardError: none or all of them would be, although a share is set.
    """
    share = settings.demonstration_share
    if not share:
        return 0
    samples = batch_size // layout.replicas
    number = round(share * samples)
    if not 0 < number < samples:
        raise CallboardError(
            f"agent.replay.demonstration_share {share:g} leaves {'none' if number else 'all'} of the {samples} samples "
            "of a learner device to what is played: choose one in between, or a larger agent.batch_size"
        )
    return number


def of_played(settings: ReplaySettings, number: int, samples: int) -> ReplaySettings:
    """Returns settings of the table of what is played, of which a batch has fewer samples.

    Learner steps per item stay as they were.

    Args:
      settings: those of the agent.
      number: demonstrations in a replica's share of a batch.
      samples: samples in it.
    """
    part = 1 - number / samples
    buffer = settings.error_buffer
    return dataclasses.replace(
        settings,
        samples_per_insert=settings.samples_per_insert * part,
        error_buffer=None if buffer is None else buffer * part,
    )


def demonstration_table(
    signature: Any, layout: Layout, settings: ReplaySettings, number: int, samples: int, priority_exponent: float
) -> reverb.Table:
    """Creates one shard of the table of demonstrations.

    Sampling begins when it is full.  Feeders then replace the oldest items, as slowly as `samples_per_insert` says, by
    ones with the newest recurrent states and priorities.  Sampling never waits for them.

    Args:
      signature: `tf.TensorSpec` nest of one item.
      layout: the run's layout.
      settings: those of the agent.
      number: demonstrations in a replica's share of a batch.
      samples: samples in it.
      priority_exponent: see `tables.replay_table`.
    """
    size = max(1, (settings.demonstration_items or settings.size) // layout.shards)
    per_insert = settings.samples_per_insert * number / samples
    return reverb.Table(
        name=DEMONSTRATIONS,
        sampler=reverb.selectors.Prioritized(priority_exponent) if priority_exponent else reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=size,
        rate_limiter=reverb.rate_limiters.RateLimiter(
            samples_per_insert=per_insert,
            min_size_to_sample=size,
            min_diff=-sys.float_info.max,
            max_diff=per_insert * (size + layout.envs_per_actor + 1),
        ),
        signature=signature,
    )


def with_demonstrations(played: tf.data.Dataset, recorded: tf.data.Dataset, batches: int) -> tf.data.Dataset:
    """Returns a dataset of `SampledItems` whose batches hold what is played, and then demonstrations.

    Probabilities and numbers of items remain those within each table.

    Args:
      played: dataset of `SampledItems`, `batches` concatenated batches per element.
      recorded: likewise, of demonstrations.
      batches: batches per element.
    """

    @tf.autograph.experimental.do_not_convert
    def joined(first: SampledItems, second: SampledItems) -> SampledItems:
        def leaf(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
            parts = [tf.reshape(part, (batches, -1, *part.shape[1:])) for part in (one, other)]
            return tf.reshape(tf.concat(parts, axis=1), (-1, *one.shape[1:]))

        return tree.map_structure(leaf, first, second)

    return tf.data.Dataset.zip((played, recorded)).map(joined)
