"""Which transitions count: every combination of what an environment can show."""

import numpy as np
import pytest

from callboard.agents.losses.transitions import counts

TRUTH = [
    # last[t], first[t+1], discount, counts: what happened
    (False, False, 1.0, True),  # the episode goes on
    (False, False, 0.0, True),  # terminated, with the final observation to come
    (False, True, 0.0, True),  # terminated, and reset in the same step
    (False, True, 1.0, False),  # cut off and reset in the same step: the final observation is lost
    (False, True, 0.5, False),
    (True, True, 1.0, False),  # the action after a final observation is ignored
    (True, True, 0.0, False),
    (True, False, 1.0, False),
]


def test_truth_table():
    last_t, first_tp1, discount_t, expected = (np.array(column) for column in zip(*TRUTH, strict=True))
    nothing = np.zeros(len(TRUTH), bool)
    result = counts(np.stack([nothing, first_tp1]), np.stack([last_t, nothing]), discount_t[np.newaxis])
    np.testing.assert_array_equal(result, expected[np.newaxis])


def test_only_neighbors_in_time_matter():
    """One environment: reset, step, time limit shown by a last timestep, reset, step, termination in the same step."""
    first = np.array([True, False, False, True, False, True])[:, np.newaxis]
    last = np.array([False, False, True, False, False, False])[:, np.newaxis]
    discount = np.array([1.0, 1.0, 1.0, 1.0, 0.0])[:, np.newaxis]
    np.testing.assert_array_equal(counts(first, last, discount)[:, 0], [True, True, False, True, True])


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match="discount_t"):
        counts(np.zeros((3, 2), bool), np.zeros((3, 2), bool), np.ones((3, 2)))
    with pytest.raises(ValueError, match="first has shape"):
        counts(np.zeros((3,), bool), np.zeros((3, 2), bool), np.ones((2, 2)))
