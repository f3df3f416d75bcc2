"""Reverb tables, sized from what goes through them."""

from typing import Any

import reverb


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
