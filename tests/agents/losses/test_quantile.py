"""Quantile regression: targets and loss against loops written from Dabney et al. 2018."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.quantile import quantile_huber_loss, quantile_target

BATCH, NUMBER = 20, 5


def random_batch(seed=0):
    rng = np.random.default_rng(seed)
    terminated = rng.random(BATCH) < 0.3
    quantiles, theta = 2 * rng.normal(size=(2, BATCH, NUMBER))
    return rng.normal(size=BATCH), 0.9 * ~terminated, quantiles, theta, rng.random(BATCH) < 0.7


def test_targets_end_with_a_termination():
    reward, discount, quantiles, *_ = random_batch()
    target = quantile_target(reward, discount, quantiles)
    assert target.dtype == tf.float64
    for b, j in np.ndindex(BATCH, NUMBER):
        np.testing.assert_allclose(target[b, j], reward[b] + discount[b] * quantiles[b, j], rtol=1e-12)
    spoilt = np.where(discount[:, np.newaxis] == 0, np.nan, quantiles)
    np.testing.assert_array_equal(quantile_target(reward, discount, spoilt), target)


@pytest.mark.parametrize("huber", [1.0, 0.3, None])
def test_the_loss_is_that_of_the_paper(huber):
    _, _, target, theta, is_valid = random_batch(1)
    loss = quantile_huber_loss(theta, target, is_valid, huber)
    for b in range(BATCH):
        total = 0.0
        for i in range(NUMBER if is_valid[b] else 0):
            tau = (2 * i + 1) / (2 * NUMBER)
            for j in range(NUMBER):
                u = target[b, j] - theta[b, i]
                if huber is None:
                    size = abs(u)
                else:
                    size = (u**2 / 2 if abs(u) <= huber else huber * (abs(u) - huber / 2)) / huber
                total += abs(tau - (u < 0)) * size / NUMBER
        np.testing.assert_allclose(loss[b], total, rtol=1e-12)


def test_its_minimum_is_at_the_quantiles_of_the_targets():
    theta = tf.Variable(np.zeros((1, 3)))
    target, optimizer = np.arange(0.0, 6.0)[np.newaxis], tf.keras.optimizers.SGD(0.2, jit_compile=False)

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(quantile_huber_loss(theta, target, [True], None))
        optimizer.apply_gradients([(tape.gradient(loss, theta), theta)])

    for _ in range(300):
        step()
    # At 1/6, 1/2 and 5/6 of the six numbers any value between two of them is a quantile.
    low, middle, high = theta.numpy()[0]
    assert 0 <= low <= 1.05 and 1.95 <= middle <= 3.05 and 3.95 <= high <= 5


def test_no_gradients_flow_through_the_target_and_wrong_shapes_are_named():
    reward, discount, quantiles, theta, is_valid = random_batch(2)
    variable = tf.Variable(quantiles)
    with tf.GradientTape() as tape:
        loss = quantile_huber_loss(theta, quantile_target(reward, discount, variable), is_valid)
    assert tape.gradient(loss, variable) is None
    with pytest.raises(ValueError, match="valid"):
        quantile_huber_loss(theta, quantiles, is_valid[:3])
    with pytest.raises(ValueError, match="discount_t"):
        quantile_target(reward, discount[:3], quantiles)
