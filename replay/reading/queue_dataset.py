"""Dataset of a queue's sequences: time-major batches, one replica's share per element."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tree

from ...data import Layout, Nest, Sample
from ..servers.handle import ReplayHandle
from ..writing.sequences import SequenceColumns, SequenceItem
from .queue_items import queue_items
from .read_ahead import read_ahead, split_batches


def queue_dataset(
    replay: ReplayHandle,
    layout: Layout,
    table: str,
    length: int,
    replica_batch: int,
    shards: Sequence[int] = (0,),
    updates_per_call: int = 1,
    stack: int = 1,
    repeats: bool = False,
    keeps_returns: bool = False,
) -> tf.data.Dataset:
    """Returns sequences in the order in which they were written, as `Sample` batches of `replica_batch` sequences.

    Two elements are read ahead of the learner: one that is complete, and the items of the next.

    An item holds the sequences of a whole actor batch; items are concatenated or split along B.  They are deduplicated
    across all datasets of the same handle, see `DuplicateFilter`.

    Args:
      replay: handle of the replay to read from.
      layout: contains the specs of record and state, and the number of environments of an item.
      table: name of a first-in-first-out table.
      length: transitions in a sequence (T).
      replica_batch: sequences in a replica's share of a batch.
      shards: indices of the replay shards to read from, see `queue_items`.
      updates_per_call: batches in an element of the dataset, stacked along a first axis if more than one.
      stack: see `SequenceColumns`, as for `repeats`.
      repeats: whether sequences share no observations.
      keeps_returns: see `SequenceColumns`.
    """
    envs_per_item = layout.envs_per_actor
    columns = SequenceColumns(layout, envs_per_item, stack, repeats, keeps_returns)
    signature = columns.signature(length)
    blocks = max(1, updates_per_call * replica_batch // envs_per_item)
    batches = blocks * envs_per_item // replica_batch
    items = queue_items(replay, table, signature, shards, ahead=blocks)
    received = replay.received
    received.prepare()

    @tf.autograph.experimental.do_not_convert
    def without_repeated(newest: Any) -> SequenceItem:
        items: SequenceItem = newest.data
        new = received.new(columns.item_ids(items.packed))

        def picked() -> SequenceItem:
            return tree.map_structure(lambda leaf: tf.gather(leaf, new), items)

        # Copying frames takes longer than a `tf.cond`, copying the rest does not; and a single-threaded map does not
        # support `tf.cond`.
        return tf.cond(tf.size(new) == blocks, lambda: items, picked) if items.frames else picked()

    @tf.autograph.experimental.do_not_convert
    def read(items: SequenceItem) -> Sample:
        items = tree.map_structure(lambda leaf: tf.ensure_shape(leaf, (blocks, *leaf.shape[1:])), items)
        sample = columns.read(items)
        return sample if batches == 1 else split_batches(sample, batches)

    # With frames, the cost of a thread pool is negligible compared with copying, and several cores can share the work.
    mapped = tf.data.Dataset.map if signature.frames else single_threaded_map
    # All items of a batch are mapped in one call, since calling the function takes longer than its operations.
    new_items = mapped(items.batch(blocks, drop_remainder=True), without_repeated)
    dataset = mapped(new_items.rebatch(blocks, drop_remainder=True), read)
    if batches != updates_per_call:
        # An item holds more than the batches of one call.
        dataset = dataset.unbatch()
        if updates_per_call > 1:
            dataset = dataset.batch(updates_per_call, drop_remainder=True)
    return read_ahead(dataset, 1)


def single_threaded_map(dataset: tf.data.Dataset, function: Callable[[Any], Nest]) -> tf.data.Dataset:
    """Like `dataset.map(function)`, but without passing each element to a thread pool and back.

    The pool takes several times as long as a function of a few small operations, in CPU time as well.

    Args:
      dataset: a dataset of nests of tensors.
      function: function of one element, without control flow (`tf.cond`, `tf.while_loop`), which TensorFlow's
        single-threaded executor does not support.
    """
    outputs: Nest = None

    def of_leaves(*leaves: tf.Tensor) -> list[tf.Tensor]:
        nonlocal outputs
        result = function(tree.unflatten_as(dataset.element_spec, leaves))
        outputs = tree.map_structure(tf.type_spec_from_value, result)
        return tree.flatten(result)

    traced = tf.function(of_leaves, autograph=False).get_concrete_function(*tree.flatten(dataset.element_spec))
    mapped = tf.data.experimental.from_variant(
        tf.raw_ops.MapDataset(
            input_dataset=tf.data.experimental.to_variant(dataset),
            other_arguments=traced.captured_inputs,
            f=traced,
            output_types=[leaf.dtype for leaf in tree.flatten(outputs)],
            output_shapes=[leaf.shape for leaf in tree.flatten(outputs)],
            use_inter_op_parallelism=False,
        ),
        outputs,
    )
    # Keep a reference: TensorFlow deletes a function that is no longer referenced.
    mapped.function = traced
    return mapped
