"""The losses of PPO against the paper's equation, element by element, and what their gradients do at the clip."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.ppo import approximate_kl, clipped_surrogate_loss, clipped_value_loss, log_ratio

VALID = np.ones((1, 4), bool)


def rows(*numbers):
    return tf.constant([numbers], tf.float64)


def test_surrogate_is_the_smaller_of_both():
    rng = np.random.default_rng(0)
    ratio, advantage = np.exp(rng.normal(size=(6, 8))), rng.normal(size=(6, 8))
    is_valid = rng.random((6, 8)) < 0.8
    loss = clipped_surrogate_loss(np.log(ratio), advantage, is_valid, 0.3).numpy()
    for t, b in np.ndindex(6, 8):
        clipped = max(0.7, min(1.3, ratio[t, b]))
        expected = -min(ratio[t, b] * advantage[t, b], clipped * advantage[t, b]) if is_valid[t, b] else 0.0
        assert loss[t, b] == pytest.approx(expected, rel=1e-12)
    assert ((ratio > 1.3) & (advantage > 0)).any() and ((ratio < 0.7) & (advantage < 0)).any()


def test_nothing_pulls_the_ratio_further_out_and_everything_back():
    logs = tf.math.log(rows(1.5, 0.5, 1.5, 0.5))
    with tf.GradientTape() as tape:
        tape.watch(logs)
        loss = clipped_surrogate_loss(logs, rows(2.0, -2.0, -2.0, 2.0), VALID, 0.2)
    np.testing.assert_allclose(tape.gradient(loss, logs), [[0.0, 0.0, 3.0, -1.0]])


def test_a_policy_that_has_moved_beyond_all_measure_gives_finite_gradients():
    logs = rows(1e3, 1e3, -1e3, -1e3)
    with tf.GradientTape() as tape:
        tape.watch(logs)
        loss = clipped_surrogate_loss(logs, rows(1.0, -1.0, 1.0, -1.0), VALID, 0.2)
    assert np.isfinite(loss).all() and np.isfinite(tape.gradient(loss, logs)).all()


def test_value_moves_freely_only_within_the_clip():
    value = rows(1.1, 1.5, 1.5, 0.5)
    # From an old value of 1, with a clip of 0.2: inside; outside and past the target; outside on the way to it; outside
    # and away from it.
    with tf.GradientTape() as tape:
        tape.watch(value)
        loss = clipped_value_loss(value, rows(1.0, 1.0, 1.0, 1.0), rows(2.0, 1.0, 3.0, 2.0), VALID, 0.2)
    np.testing.assert_allclose(loss, [[0.9**2 / 2, 0.5**2 / 2, 1.8**2 / 2, 1.5**2 / 2]])
    np.testing.assert_allclose(tape.gradient(loss, value), [[-0.9, 0.5, 0.0, -1.5]])


def test_what_does_not_count_is_zero_whatever_it_holds():
    is_valid = np.array([[True, False, False, True]])
    log_prob = rows(-1.0, -1e4, -2.0, -3.0)
    with tf.GradientTape() as tape:
        tape.watch(log_prob)
        logs = log_ratio(log_prob, rows(-1.5, -1e9, 1e9, -3.0), is_valid)
        loss = clipped_surrogate_loss(logs, rows(1.0, 1.0, 1.0, 1.0), is_valid, 10.0)
    np.testing.assert_allclose(logs, [[0.5, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(tape.gradient(loss, log_prob), [[-np.exp(0.5), 0.0, 0.0, -1.0]])
    value = clipped_value_loss(log_prob, log_prob, rows(1e9, 1e9, 1e9, -3.0), is_valid, 0.2).numpy()
    np.testing.assert_array_equal(value[0, 1:], 0)


def test_mean_of_the_estimate_is_the_kl():
    rng = np.random.default_rng(0)
    mu, pi = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    estimate = approximate_kl(np.log(pi / mu)[np.newaxis]).numpy()[0]
    assert (estimate >= 0).all()
    assert (mu * estimate).sum() == pytest.approx((mu * np.log(mu / pi)).sum())


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match="advantage_t"):
        clipped_surrogate_loss(np.zeros((3, 2)), np.zeros((3, 1)), np.ones((3, 2), bool), 0.2)
    with pytest.raises(ValueError, match="behavior_log_prob_t"):
        log_ratio(np.zeros((3, 2)), np.zeros(2), np.ones((3, 2), bool))
