"""How many updates an agent that samples from replay makes in one call, unless its setting says so."""

import math

import tree

from ...data import Layout
from ...settings.replay_settings import ReplaySettings

_MOST = 16
_LARGEST = 8192
"""Bytes of an observation, stacked, up to which networks are expected to be small: a call then costs as much as an
update."""


def updates_at_once(
    layout: Layout,
    settings: ReplaySettings,
    batch_size: int,
    accumulate: int = 1,
    frame_stack: int = 1,
    timesteps: int = 1,
    most: int = _MOST,
    period: int | None = None,
) -> int:
    """Returns a power of two of updates; 1 where observations are large, as images are.

    It divides the run's limit of learner steps, and fits an error buffer that is set.

    Args:
      layout: the run's layout.
      settings: how often replay is sampled.
      batch_size: items in a batch.
      accumulate: batches in an update.
      frame_stack: number of most recent images that the network sees.
      timesteps: timesteps of all environments whose share of updates may be made at once; weights are published after.
      most: the largest number, a power of two.
      period: a number of learner steps that it must also divide; None for none.
    """
    leaves = tree.flatten(layout.spec.observation)
    if frame_stack * sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves) > _LARGEST:
        return 1
    items = batch_size * accumulate
    due = timesteps * layout.actors * layout.envs_per_actor * settings.samples_per_insert / items
    number = most
    while number > 1 and not (
        number <= due
        and (layout.max_learner_steps or 0) % number == 0
        and (period or 0) % number == 0
        and settings.allows_at_once(layout, number * items)
    ):
        number //= 2
    return number
