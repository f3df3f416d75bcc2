"""MPO's losses against loops written from the papers, where their gradients go, and what they lead to."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.mpo import (
    decoupled_improvement,
    improved_weights,
    kl_penalty,
    multiplier_loss,
    out_of_bounds_cost,
)

NUMBER, BATCH, SIZE = 5, 4, 2


def random_policies(seed=0):
    rng = np.random.default_rng(seed)
    mean, log_std, target_mean, target_log_std = 0.5 * rng.normal(size=(4, BATCH, SIZE))
    actions = target_mean + np.exp(target_log_std) * rng.normal(size=(NUMBER, BATCH, SIZE))
    return mean, log_std, target_mean, target_log_std, actions


def test_weights_and_the_loss_of_the_temperature():
    values, temperature = 2 * np.random.default_rng(0).normal(size=(NUMBER, BATCH)), tf.Variable(0.7, dtype=tf.float64)
    with tf.GradientTape() as tape:
        weights, loss = improved_weights(values, temperature, 0.1)
        total = tf.reduce_sum(loss)
    assert weights.dtype == loss.dtype == tf.float64
    for b in range(BATCH):
        exponentials = [np.exp(values[n, b] / 0.7) for n in range(NUMBER)]
        np.testing.assert_allclose(weights[:, b], np.array(exponentials) / sum(exponentials), rtol=1e-12)
        np.testing.assert_allclose(loss[b], 0.7 * (0.1 + np.log(sum(exponentials) / NUMBER)), rtol=1e-12)
    # By the temperature: epsilon minus the divergence of the weights from uniform ones.
    divergence = (weights * np.log(NUMBER * weights)).numpy().sum(axis=0)
    np.testing.assert_allclose(tape.gradient(total, temperature), (0.1 - divergence).sum(), rtol=1e-9)


def test_the_cost_of_actions_beyond_the_bounds():
    actions = np.array([[[0.5, -1.0]], [[4.0, -5.0]]])
    np.testing.assert_allclose(out_of_bounds_cost(actions), [[0.0], [-5.0]])


def test_mean_and_standard_deviation_are_fitted_apart():
    policies = mean, log_std, target_mean, target_log_std, actions = random_policies()
    weights = np.random.default_rng(1).dirichlet(np.ones(NUMBER), BATCH).T
    variables = list(map(tf.Variable, policies))
    with tf.GradientTape(persistent=True) as tape:
        found = decoupled_improvement(*variables, weights)
        loss = tf.reduce_sum(found.policy_loss)

    def minus_log_likelihood(center, log_scale):
        total = 0.0
        for n, b, d in np.ndindex(NUMBER, BATCH, SIZE):
            scale = np.exp(log_scale[b, d])
            total += weights[n, b] * (((actions[n, b, d] - center[b, d]) / scale) ** 2 / 2 + np.log(scale))
        return total

    expected = minus_log_likelihood(mean, target_log_std) + minus_log_likelihood(target_mean, log_std)
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    gradients = tape.gradient(loss, variables)
    assert gradients[2:] == [None] * 3
    offset = np.zeros((BATCH, SIZE))
    offset[1, 0] = 1e-6
    by_mean = (minus_log_likelihood(mean + offset, target_log_std) - minus_log_likelihood(mean, target_log_std)) / 1e-6
    by_std = (minus_log_likelihood(target_mean, log_std + offset) - minus_log_likelihood(target_mean, log_std)) / 1e-6
    np.testing.assert_allclose([gradients[0][1, 0], gradients[1][1, 0]], [by_mean, by_std], rtol=1e-4)
    for b, d in np.ndindex(BATCH, SIZE):
        std, target_std = np.exp(log_std[b, d]), np.exp(target_log_std[b, d])
        np.testing.assert_allclose(
            found.kl_mean[b, d], (target_mean[b, d] - mean[b, d]) ** 2 / (2 * target_std**2), rtol=1e-12
        )
        np.testing.assert_allclose(
            found.kl_stddev[b, d], np.log(std / target_std) + target_std**2 / (2 * std**2) - 0.5, rtol=1e-9, atol=1e-12
        )


def test_multipliers_rise_while_their_constraint_is_violated():
    kl, alpha = tf.Variable([[0.3, 0.1], [0.5, 0.0]]), tf.Variable([2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        penalty, loss = kl_penalty(kl, alpha), multiplier_loss(kl, alpha, 0.2)
    np.testing.assert_allclose(penalty, [0.9, 1.0], rtol=1e-6)
    np.testing.assert_allclose(loss, [2 * -0.1 + 3 * 0.1, 2 * -0.3 + 3 * 0.2], rtol=1e-5, atol=1e-7)
    assert tape.gradient(penalty, alpha) is None and tape.gradient(loss, kl) is None
    np.testing.assert_allclose(tape.gradient(loss, alpha), [-0.4, 0.3], rtol=1e-5)


def test_wrong_shapes_are_named():
    *policies, actions = random_policies()
    with pytest.raises(ValueError, match="weights"):
        decoupled_improvement(*policies, actions, np.ones((NUMBER, BATCH - 1)))
    with pytest.raises(ValueError, match="values has shape"):
        improved_weights(np.ones(3), 1.0, 0.1)
