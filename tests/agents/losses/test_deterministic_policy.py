"""TD3's targets and the deterministic policy gradient against loops written from the papers."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.deterministic_policy import (
    bootstrapped_target,
    deterministic_policy_loss,
    smoothed_action,
)

BATCH = 30


def test_the_target_policy_s_action_is_smoothed_within_both_limits():
    rng = np.random.default_rng(0)
    action, noise = rng.uniform(-1, 1, (BATCH, 2)), rng.normal(size=(BATCH, 2))
    smoothed = smoothed_action(action, noise, 0.5)
    assert smoothed.dtype == tf.float64
    for b, d in np.ndindex(BATCH, 2):
        expected = max(-1.0, min(1.0, action[b, d] + max(-0.5, min(0.5, noise[b, d]))))
        assert smoothed[b, d].numpy() == pytest.approx(expected, rel=1e-12)
    assert (np.abs(smoothed) == 1).any() and (np.abs(noise) > 0.5).any()


def test_the_target_is_of_the_lower_critic_and_ends_with_a_termination():
    rng = np.random.default_rng(1)
    terminated = rng.random(BATCH) < 0.3
    reward, q1, q2 = (3 * rng.normal(size=BATCH) for _ in range(3))
    discount = 0.99 * ~terminated
    target = bootstrapped_target(reward, discount, np.minimum(q1, q2))
    for b in range(BATCH):
        expected = reward[b] if terminated[b] else reward[b] + 0.99 * min(q1[b], q2[b])
        np.testing.assert_allclose(target[b], expected, rtol=1e-12)
    # The observation after a termination may be of another episode, or a filling.
    spoilt = np.where(terminated, np.nan, q1)
    np.testing.assert_array_equal(bootstrapped_target(reward, discount, np.minimum(spoilt, q2)), target)


def test_gradients_flow_to_the_policy_alone_and_only_where_transitions_are_valid():
    rng = np.random.default_rng(2)
    q, mask = tf.Variable(rng.normal(size=BATCH)), rng.random(BATCH) < 0.7
    action = tf.Variable(rng.uniform(-1, 1, (BATCH, 1)))
    with tf.GradientTape(persistent=True) as tape:
        loss = deterministic_policy_loss(q, mask)
        target = bootstrapped_target(np.ones(BATCH), np.ones(BATCH), q)
        smoothed = smoothed_action(action, np.zeros((BATCH, 1)), 0.5)
    np.testing.assert_allclose(loss, np.where(mask, -q.numpy(), 0.0))
    np.testing.assert_allclose(tape.gradient(loss, q), np.where(mask, -1.0, 0.0))
    assert tape.gradient(target, q) is None and tape.gradient(smoothed, action) is None


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match="noise"):
        smoothed_action(np.zeros((4, 2)), np.zeros((4, 1)), 0.5)
    with pytest.raises(ValueError, match="discount_t"):
        bootstrapped_target(np.zeros(4), np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="valid_t"):
        deterministic_policy_loss(np.zeros(4), np.ones((4, 1), bool))
