"""Batches that were read side by side are the same when they are separated."""

import numpy as np
import tensorflow as tf
import tree

from callboard.data import ItemInfo, Record, Sample
from callboard.replay.reading.read_ahead import split_batches

LENGTH, BATCHES, BATCH = 2, 3, 4


def numbered(*shape):
    return tf.reshape(tf.range(int(np.prod(shape))), shape)


def test_each_batch_has_its_own_records_states_and_infos():
    side_by_side = BATCHES * BATCH
    rows, transitions = numbered(LENGTH + 1, side_by_side), numbered(LENGTH, side_by_side)
    record = Record(
        observation={"eye": numbered(LENGTH + 1, side_by_side, 5, 6), "goal": (rows,)},
        first=rows,
        last=rows,
        action=transitions,
        reward=transitions,
        discount=transitions,
        extras=(),
        version=numbered(LENGTH, side_by_side, 2),
    )
    info = ItemInfo(*(numbered(side_by_side) for _ in ItemInfo._fields))
    sample = Sample(record, {"core": numbered(side_by_side, 7)}, info)
    split = split_batches(sample, BATCHES)
    assert split.record.observation["eye"].shape == (BATCHES, LENGTH + 1, BATCH, 5, 6)
    assert split.record.reward.shape == (BATCHES, LENGTH, BATCH)
    assert split.state["core"].shape == (BATCHES, BATCH, 7) and split.info.key.shape == (BATCHES, BATCH)
    for number in range(BATCHES):
        own = slice(number * BATCH, (number + 1) * BATCH)
        expected = Sample(
            tree.map_structure(lambda leaf, own=own: leaf[:, own], record),
            {"core": sample.state["core"][own]},
            tree.map_structure(lambda leaf, own=own: leaf[own], info),
        )
        found = tree.map_structure(lambda leaf, number=number: leaf[number], split)
        tree.map_structure(np.testing.assert_array_equal, found, expected)


def test_one_batch_has_an_axis_too():
    record = Record(*[()] * len(Record._fields))._replace(reward=numbered(LENGTH, BATCH))
    assert split_batches(Sample(record, ()), 1).record.reward.shape == (1, LENGTH, BATCH)
