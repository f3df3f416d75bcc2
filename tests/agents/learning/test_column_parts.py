"""Calls in parts of a batch's columns: the same results, and none of them sees more than a part."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.learning import column_parts
from callboard.agents.learning.column_parts import in_column_parts


@pytest.mark.parametrize(("most", "parts"), [(1000, 1), (90, 1), (89, 2), (45, 2), (44, 3), (15, 6), (1, 6)])
@pytest.mark.parametrize("graph", [True, False])
def test_results_are_those_of_the_whole_and_parts_are_no_larger_than_they_may_be(monkeypatch, most, parts, graph):
    monkeypatch.setattr(column_parts, "_MOST_NUMBERS", most)
    rng = np.random.default_rng(0)
    # Images and a number for each of the transitions: 90 numbers in 6 columns, in lists of other lengths.
    images, numbers = rng.integers(256, size=(3, 6, 2, 2)).astype(np.uint8), rng.normal(size=(3, 6)).astype(np.float32)
    state = rng.normal(size=(6, 5)).astype(np.float32)
    seen = []

    def function(columns, state):
        seen.append((columns["images"].shape, columns["numbers"].shape, state["state"].shape))
        return tf.reduce_sum(tf.cast(columns["images"], tf.float32), (2, 3)) * columns["numbers"] + state["state"][:, 0]

    def whole(images, numbers, state):
        return in_column_parts(function, {"images": images, "numbers": numbers}, {"state": state})

    results = (tf.function(whole) if graph else whole)(*map(tf.constant, (images, numbers, state)))
    np.testing.assert_allclose(results, images.sum((2, 3)) * numbers + state[:, 0], rtol=1e-6)
    columns = 6 // parts
    assert set(seen) == {((3, columns, 2, 2), (3, columns), (columns, 5))}
