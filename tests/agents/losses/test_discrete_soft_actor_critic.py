"""Discrete SAC's losses against loops written from Christodoulou 2019, and where their gradients go."""

import numpy as np
import tensorflow as tf

from callboard.agents.losses.discrete_soft_actor_critic import expected_log_prob, expected_value
from callboard.agents.losses.soft_actor_critic import actor_loss, soft_target

BATCH, ACTIONS, ALPHA = 20, 4, 0.3


def random_batch(seed=0):
    rng = np.random.default_rng(seed)
    terminated = rng.random(BATCH) < 0.3
    q1, q2, logits = 2 * rng.normal(size=(3, BATCH, ACTIONS))
    return rng.normal(size=BATCH), 0.9 * ~terminated, q1, q2, tf.nn.log_softmax(logits), rng.random(BATCH) < 0.7


def discrete_soft_target(reward, discount, q1, q2, log_probs, alpha):
    value = expected_value(log_probs, tf.minimum(q1, q2))
    return soft_target(reward, discount, value, expected_log_prob(log_probs), alpha)


def discrete_actor_loss(q1, q2, log_probs, alpha, is_valid):
    value = expected_value(log_probs, tf.minimum(q1, q2))
    return actor_loss(value, expected_log_prob(log_probs), alpha, is_valid)


def test_target():
    reward, discount, q1, q2, log_probs, _ = random_batch()
    result = discrete_soft_target(reward, discount, q1, q2, log_probs, ALPHA)
    assert result.dtype == tf.float64
    for b in range(BATCH):
        value = 0.0
        for a in range(ACTIONS):
            value += np.exp(log_probs[b, a]) * (min(q1[b, a], q2[b, a]) - ALPHA * log_probs[b, a])
        np.testing.assert_allclose(result[b], reward[b] + discount[b] * value, rtol=1e-12)
    spoilt = np.where(discount[:, np.newaxis] == 0, np.nan, q1)
    np.testing.assert_array_equal(discrete_soft_target(reward, discount, spoilt, q2, log_probs, ALPHA), result)


def test_actor_loss_and_entropy():
    _, _, q1, q2, log_probs, is_valid = random_batch(1)
    result = discrete_actor_loss(q1, q2, log_probs, ALPHA, is_valid)
    for b in range(BATCH):
        entropy = -sum(np.exp(log_probs[b, a]) * log_probs[b, a] for a in range(ACTIONS))
        value = sum(np.exp(log_probs[b, a]) * min(q1[b, a], q2[b, a]) for a in range(ACTIONS))
        np.testing.assert_allclose(result[b], (-ALPHA * entropy - value) * is_valid[b], rtol=1e-12)
        np.testing.assert_allclose(expected_log_prob(log_probs)[b], -entropy, rtol=1e-12)


def test_gradients_of_the_policy():
    reward, discount, *tensors, is_valid = random_batch(2)
    q1, q2, log_probs = map(tf.Variable, tensors)
    alpha = tf.Variable(ALPHA, dtype=tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        target = discrete_soft_target(reward, discount, q1, q2, log_probs, alpha)
        loss = discrete_actor_loss(q1, q2, log_probs, alpha, is_valid)
    assert tape.gradient(target, [q1, q2, log_probs, alpha]) == [None] * 4
    assert tape.gradient(loss, alpha) is None
    expected = np.exp(log_probs) * (ALPHA * (log_probs + 1) - np.minimum(q1, q2)) * is_valid[:, np.newaxis]
    np.testing.assert_allclose(tape.gradient(loss, log_probs), expected, rtol=1e-12)


def test_an_action_that_is_impossible_has_no_part_and_no_gradient():
    _, _, q1, q2, _, _ = random_batch()
    logits = tf.Variable(np.random.default_rng(3).normal(size=(BATCH, ACTIONS)))
    possible = np.arange(ACTIONS) < ACTIONS - 1
    with tf.GradientTape() as tape:
        log_probs = tf.nn.log_softmax(tf.where(possible, logits, -1e9))
        loss = discrete_actor_loss(np.where(possible, q1, np.inf), q2, log_probs, ALPHA, np.ones(BATCH, bool))
    gradient = tape.gradient(loss, logits).numpy()
    assert np.isfinite(loss).all() and (gradient[:, -1] == 0).all() and (gradient[:, :-1] != 0).all()
    without = discrete_actor_loss(
        q1[:, :-1], q2[:, :-1], tf.nn.log_softmax(logits[:, :-1]), ALPHA, np.ones(BATCH, bool)
    )
    np.testing.assert_allclose(loss, without, rtol=1e-9)


def test_what_is_taken_is_certain():
    _, _, q1, q2, _, _ = random_batch()
    action = np.arange(BATCH) % ACTIONS
    taken = expected_value(tf.math.log(tf.one_hot(action, ACTIONS, dtype=tf.float64)), tf.stack([q1, q2]))
    np.testing.assert_array_equal(taken, [q[np.arange(BATCH), action] for q in (q1, q2)])
