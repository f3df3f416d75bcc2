"""SAC's losses against loops written from the paper, and where their gradients go."""

import math

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.soft_actor_critic import (
    actor_loss,
    critic_loss,
    soft_rewards,
    soft_target,
    temperature_loss,
)

BATCH = 30
ALPHA = 0.3


def random_batch(seed=0):
    rng = np.random.default_rng(seed)
    terminated, is_valid = rng.random(BATCH) < 0.3, rng.random(BATCH) < 0.7
    assert terminated.any() and (~is_valid).any()
    reward, q1, q2, log_prob = (3 * rng.normal(size=BATCH) for _ in range(4))
    return reward, 0.99 * ~terminated, q1, q2, log_prob, is_valid


def test_target():
    reward, discount, q1, q2, log_prob, _ = random_batch()
    value = np.minimum(q1, q2)
    result = soft_target(reward, discount, value, log_prob, ALPHA)
    assert result.dtype == tf.float64
    for b in range(BATCH):
        soft_value = min(q1[b], q2[b]) - ALPHA * log_prob[b]
        np.testing.assert_allclose(result[b], reward[b] + discount[b] * soft_value, rtol=1e-12)
    # The observation after a termination may be of another episode, or a filling.
    spoilt = np.where(discount == 0, np.nan, value)
    np.testing.assert_array_equal(soft_target(reward, discount, spoilt, log_prob, ALPHA), result)
    quantiles = np.stack([value, value + 1], axis=1)
    both = soft_target(reward, discount, quantiles, log_prob, ALPHA)
    np.testing.assert_allclose(both, np.stack([result, result + discount], axis=1), rtol=1e-12)


def test_rewards_of_a_window_with_the_entropy_on_the_way():
    rng = np.random.default_rng(3)
    reward, log_prob = rng.normal(size=(3, BATCH)), rng.normal(size=(2, BATCH))
    result = soft_rewards(reward, log_prob, ALPHA)
    for t, b in np.ndindex(3, BATCH):
        expected = reward[t, b] - (ALPHA * log_prob[t - 1, b] if t else 0.0)
        np.testing.assert_allclose(result[t, b], expected, rtol=1e-12)
    with pytest.raises(ValueError, match="same shape"):
        soft_rewards(reward, log_prob[:1], ALPHA)


def test_losses():
    _, target, q1, q2, log_prob, is_valid = random_batch(1)
    critic = critic_loss([q1, q2], target, is_valid)
    actor = actor_loss(np.minimum(q1, q2), log_prob, ALPHA, is_valid)
    temperature = temperature_loss(tf.constant(ALPHA, tf.float64), log_prob, -2.0, is_valid)
    for b in range(BATCH):
        expected = 0.0, 0.0, 0.0
        if is_valid[b]:
            expected = (
                0.5 * (q1[b] - target[b]) ** 2 + 0.5 * (q2[b] - target[b]) ** 2,
                ALPHA * log_prob[b] - min(q1[b], q2[b]),
                -ALPHA * log_prob[b] - ALPHA * -2.0,
            )
        np.testing.assert_allclose((critic[b], actor[b], temperature[b]), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients(dtype):
    reward, discount, q1, q2, log_prob, is_valid = (
        tf.Variable(x if x.dtype == bool else x.astype(dtype)) for x in random_batch(2)
    )
    log_alpha = tf.Variable(math.log(ALPHA), dtype=dtype)
    mask = is_valid.numpy()
    with tf.GradientTape(persistent=True) as tape:
        target = soft_target(reward, discount, tf.minimum(q1, q2), log_prob, tf.exp(log_alpha))
        critic = critic_loss(tf.stack([q1, q2]), target, is_valid)
        actor = actor_loss(tf.minimum(q1, q2), log_prob, tf.exp(log_alpha), is_valid)
        temperature = temperature_loss(tf.exp(log_alpha), log_prob, -2.0, is_valid)
    assert target.dtype == critic.dtype == actor.dtype == temperature.dtype == dtype

    assert tape.gradient(target, [q1, q2, log_prob, log_alpha]) == [None] * 4
    np.testing.assert_allclose(tape.gradient(critic, q1), np.where(mask, q1 - target, 0), atol=1e-5)
    np.testing.assert_allclose(tape.gradient(critic, q2), np.where(mask, q2 - target, 0), atol=1e-5)
    np.testing.assert_allclose(tape.gradient(actor, log_prob), np.where(mask, ALPHA, 0), atol=1e-6)
    # Only the smaller critic pulls the actor.
    np.testing.assert_allclose(tape.gradient(actor, q1), -1.0 * (mask & (q1 < q2).numpy()))
    assert tape.gradient(actor, log_alpha) is None and tape.gradient(temperature, log_prob) is None
    by_hand = (-ALPHA * (log_prob.numpy() - 2.0))[mask].sum()
    np.testing.assert_allclose(tape.gradient(temperature, log_alpha), by_hand, rtol=1e-5)


def test_temperature_rises_while_the_policy_is_too_certain():
    log_alpha = tf.Variable(0.0)
    for log_prob, sign in ((5.0, -1), (1.0, 1)):  # Entropies of -5 and -1 against a target of -3.
        with tf.GradientTape() as tape:
            loss = temperature_loss(tf.exp(log_alpha), [log_prob], -3.0, [True])
        assert np.sign(tape.gradient(loss, log_alpha)) == sign


def test_wrong_shapes_are_named():
    reward, discount, q1, q2, log_prob, is_valid = random_batch()
    with pytest.raises(ValueError, match="log_prob_tp1 has shape"):
        soft_target(reward, discount, q1, log_prob[:, np.newaxis], ALPHA)
    with pytest.raises(ValueError, match="target_t"):
        critic_loss([q1, q2], discount[:3], is_valid)
    with pytest.raises(ValueError, match="alpha has shape"):
        temperature_loss(np.ones(BATCH), log_prob, -1.0, is_valid)
