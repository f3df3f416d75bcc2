"""IQL's losses of value and critics against loops over numbers."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.implicit_q_learning import expectile_loss, state_value_target


def test_the_value_moves_to_an_expectile_of_valid_transitions():
    rng = np.random.default_rng(0)
    value, q, valid = rng.normal(size=9), rng.normal(size=9), rng.random(9) < 0.6
    found = expectile_loss(value, q, 0.8, valid)
    for b in range(9):
        error = q[b] - value[b]
        expected = (0.8 if error >= 0 else 0.2) * error**2 if valid[b] else 0.0
        np.testing.assert_allclose(found[b], expected, rtol=1e-12)
    with pytest.raises(ValueError, match="shape"):
        expectile_loss([1.0], [1.0, 2.0], 0.8, [True])


def test_the_minimum_is_the_mean_at_one_half_and_near_the_largest_value_towards_one():
    values = np.linspace(-5, 5, 2001)
    q = np.array([0.0, 1.0, 4.0])
    for expectile, least, most in ((0.5, 1.66, 1.67), (0.99, 3.8, 4.0)):
        pairs = np.repeat(values, len(q)), np.tile(q, len(values))
        losses = expectile_loss(*pairs, expectile, np.full(pairs[0].shape, True)).numpy().reshape(-1, len(q))
        assert least < values[np.argmin(losses.sum(axis=1))] < most


def test_gradients_flow_to_the_value_alone_and_nothing_follows_a_termination():
    value, q = tf.constant([1.0, 1.0]), tf.constant([3.0, 0.0])
    with tf.GradientTape() as tape:
        tape.watch([value, q])
        loss = tf.reduce_sum(expectile_loss(value, q, 0.75, [True, True]))
    of_value, of_q = tape.gradient(loss, [value, q])
    np.testing.assert_allclose(of_value, [-3.0, 0.5])
    assert of_q is None
    target = state_value_target([1.0, 2.0], [0.9, 0.0], tf.constant([10.0, np.nan]))
    np.testing.assert_allclose(target, [10.0, 2.0])
