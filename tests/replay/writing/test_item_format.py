"""Items as bytes: what of a timestep is stored, and what a batch of items is when it is unpacked."""

import numpy as np
import pytest
import tensorflow as tf
import timestep_streams
import tree

from callboard.replay import ReplayItem, SequenceFormat, WindowFormat
from callboard.replay.writing.item_format import without_last

ENVS, LENGTH = 3, 4
LAYOUT = timestep_streams.layout(ENVS)
STATE = {"core": tf.TensorSpec((2,), tf.float32), "noise": tf.TensorSpec((), tf.int32)}


def core(state):
    return state["core"]


def item_of(item_format, records, state=()):
    """A batch of items, one for each environment, as a writer would make it of these timesteps."""
    rows, packed, age = item_format.rows.rows(ENVS), [], np.full(ENVS, -1, np.int32)
    for record in records:
        age = np.where(record.first, 0, age + 1).astype(np.int32)
        packed.append(rows.fill(item_format.row_leaves(age, tree.flatten(record))).copy())
    states: object = ()
    if item_format.state:
        states = tf.constant(item_format.state.rows(ENVS).fill(item_format.state_leaves(state)))
    return ReplayItem(tf.constant(np.stack(packed, axis=1)), states)


@pytest.mark.parametrize("stack", [1, 3])
def test_items_are_unpacked_with_the_stacks_of_their_timesteps(stack):
    records = timestep_streams.stream(ENVS, LENGTH + stack, longest=4)
    item_format = SequenceFormat(LAYOUT, LENGTH, stack, keep_extras=True)
    item = item_of(item_format, records)
    assert tuple(item.rows.shape[1:]) == tuple(item_format.signature().rows.shape)
    sample = item_format.unpack(item)
    found = sample.record
    assert sample.state == () and sample.discounted_return == ()
    newest = records[stack - 1 :]
    for field in ("first", "last", "action", "reward", "discount", "version"):
        expected = np.stack([getattr(record, field) for record in newest])
        np.testing.assert_array_equal(getattr(found, field), expected, err_msg=field)
    np.testing.assert_array_equal(found.extras["q"], [record.extras["q"] for record in newest])
    np.testing.assert_array_equal(found.observation["body"], [record.observation["body"] for record in newest])
    for row in range(LENGTH + 1):
        for env in range(ENVS):
            expected = timestep_streams.stacked(records, env, stack - 1 + row, stack)
            np.testing.assert_array_equal(found.observation["eye"][row, env], expected)


def test_extras_are_stored_only_where_they_are_learned_from():
    kept, left = (SequenceFormat(LAYOUT, LENGTH, keep_extras=keep) for keep in (True, False))
    assert kept.signature().rows.shape[1] - left.signature().rows.shape[1] == 2 * 4
    records = timestep_streams.stream(ENVS, LENGTH + 1)
    found = left.unpack(item_of(left, records)).record
    assert found.extras == ()
    np.testing.assert_array_equal(found.version[:, 0], [record.version[0] for record in records])


def test_the_chosen_part_of_the_state_is_stored():
    layout = LAYOUT._replace(state=STATE)
    item_format = SequenceFormat(layout, LENGTH, stored_state=core)
    assert item_format.signature().state.shape == (8,)
    state = {"core": np.arange(2 * ENVS, dtype=np.float32).reshape(ENVS, 2), "noise": np.zeros(ENVS, np.int32)}
    sample = item_format.unpack(item_of(item_format, timestep_streams.stream(ENVS, LENGTH + 1), state))
    np.testing.assert_array_equal(sample.state, state["core"])


def test_an_agent_without_a_state_stores_none():
    assert SequenceFormat(LAYOUT, LENGTH).signature().state == ()
    assert WindowFormat(LAYOUT._replace(state=STATE), LENGTH).signature().state == ()


def test_the_last_row_of_every_leaf_is_left_out():
    assert tree.map_structure(list, without_last({"a": np.arange(3), "b": (np.arange(4),)})) == {
        "a": [0, 1],
        "b": ([0, 1, 2],),
    }
