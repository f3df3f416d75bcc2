"""Valid transitions for every combination of what an environment can show, and the transitions of an n-step return."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.transitions import reached_transitions, valid_transitions

TRUTH = [
    # last[t], first[t+1], discount, valid: what happened
    (False, False, 1.0, True),  # the episode continues
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
    result = valid_transitions(np.stack([nothing, first_tp1]), np.stack([last_t, nothing]), discount_t[np.newaxis])
    np.testing.assert_array_equal(result, expected[np.newaxis])


def test_only_neighbors_in_time_matter():
    """One environment: reset, step, time limit shown by a last timestep, reset, step, termination in the same step."""
    first = np.array([True, False, False, True, False, True])[:, np.newaxis]
    last = np.array([False, False, True, False, False, False])[:, np.newaxis]
    discount = np.array([1.0, 1.0, 1.0, 1.0, 0.0])[:, np.newaxis]
    np.testing.assert_array_equal(valid_transitions(first, last, discount)[:, 0], [True, True, False, True, True])


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"not \(3, 2\), \(3, 2\) and \(3, 2\)"):
        valid_transitions(np.zeros((3, 2), bool), np.zeros((3, 2), bool), np.ones((3, 2)))
    with pytest.raises(ValueError, match="one timestep more than discount_t"):
        valid_transitions(np.zeros((3,), bool), np.zeros((3, 2), bool), np.ones((2, 2)))


def test_a_sum_ends_after_a_termination_and_before_an_invalid_transition():
    valid = np.array([[True, True, True], [True, False, True], [True, True, False]]).T
    discount = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.5, 0.5, 1.0]]).T
    reached = reached_transitions(valid, discount)
    np.testing.assert_array_equal(
        np.transpose(reached), [[True, True, False], [True, False, False], [True, True, False]]
    )


@pytest.mark.slow("daily")
def test_tensors_in_a_graph_give_the_same_as_arrays():
    rng = np.random.default_rng(0)
    first, last = rng.random((2, 6, 50)) < 0.3
    discount = np.where(rng.random((5, 50)) < 0.3, 0.0, 0.9)

    @tf.function(autograph=False)
    def in_graph(first, last, discount):
        valid = valid_transitions(first, last, discount)
        return valid, reached_transitions(tf.unstack(valid), tf.unstack(discount))

    valid, reached = in_graph(first, last, discount)
    np.testing.assert_array_equal(valid, valid_transitions(first, last, discount))
    np.testing.assert_array_equal(reached, reached_transitions(valid.numpy(), discount))
    assert 0 < np.mean(reached) < np.mean(valid) < 1
