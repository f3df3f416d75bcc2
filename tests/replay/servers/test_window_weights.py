"""The weights of windows: what is kept, for how long, and what Reverb is given."""

import numpy as np
import pytest

from callboard.replay import WindowWeights

ENVS = 3


@pytest.fixture
def priorities():
    """The priorities that Reverb has been given, by key."""
    return {}


def weights_of(priorities, items=4, exponent=0.5):
    return WindowWeights("replay", ENVS, items, exponent, lambda table, given: priorities.update({table: given}))


def look_up(weights, keys, first):
    keys, first = np.array(keys, np.uint64), np.array(first, np.float32)
    return weights.window_weights(keys.tobytes(), first.tobytes())


def update(weights, keys, envs, priorities):
    arrays = np.array(keys, np.uint64), np.array(envs, np.int32), np.array(priorities, np.float32)
    weights.update_windows(*(array.tobytes() for array in arrays))


def test_a_window_keeps_its_first_weight_until_it_is_updated(priorities):
    weights, large = weights_of(priorities), 2**64 - 1
    first = [[1, 2, 3], [4, 0, 6]]
    np.testing.assert_array_equal(look_up(weights, [7, large], first), first)
    update(weights, [large, 7, large, 99], [2, 0, 0, 1], [9, 16, 25, 36])
    assert priorities == {"replay": {7: 4 + 2 + 3, large: 5 + 0 + 3}}
    np.testing.assert_array_equal(look_up(weights, [large, 7], np.ones((2, 3))), [[5, 0, 3], [4, 2, 3]])
    # An item that was sampled twice in a batch.
    np.testing.assert_array_equal(look_up(weights, [7, 7], np.ones((2, 3))), [[4, 2, 3], [4, 2, 3]])


def test_memory_is_bounded_and_items_that_are_in_the_table_keep_their_weights(priorities):
    """As long as items are evicted in the order in which they were inserted, in whatever order they are sampled."""
    items, rng = 5, np.random.default_rng(1)
    weights, updated = weights_of(priorities, items, exponent=1.0), {}
    for newest in range(items, 500):
        table = range(newest - items, newest)
        for key in rng.choice(table, 3).tolist():
            (found,) = look_up(weights, [key], [[0, 0, 0]])
            assert found.tolist() == updated.get(key, [0, 0, 0])
            updated[key] = [0, key + 0.5, 0]
            update(weights, [key], [1], [key + 0.5])
    assert len(weights._entries) == 2 * items


def test_saved_weights_are_restored_in_their_order_with_the_priorities_of_items(priorities, tmp_path):
    before = weights_of(priorities)
    for key in range(10):
        look_up(before, [key], [[key, 0, 1]])
    update(before, [8], [1], [4])
    before.save(tmp_path)
    priorities.clear()
    after = weights_of(priorities)
    after.restore(tmp_path)
    assert priorities == {"replay": {key: key + 1 + 2 * (key == 8) for key in range(2, 10)}}
    np.testing.assert_array_equal(look_up(after, [8, 2], np.zeros((2, 3))), [[8, 2, 1], [2, 0, 1]])
    # The next one replaces the oldest.
    look_up(after, [10], [[10, 0, 0]])
    np.testing.assert_array_equal(look_up(after, [2], [[5, 5, 5]]), [[5, 5, 5]])
