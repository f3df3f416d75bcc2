"""The squashed Gaussian against numerical integration and differentiation."""

import math

import numpy as np
import pytest
import tensorflow as tf

from callboard.networks.distributions import SquashedGaussian

PARAMETERS = [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5), (2.0, -0.3)]


def one(mean, log_std, number):
    """The same distribution of one component, `number` times."""
    return SquashedGaussian(
        tf.fill((number, 1), tf.constant(mean, tf.float64)), tf.fill((number, 1), np.float64(log_std))
    )


def cdf(action, mean, log_std):
    """P(tanh(u) <= action) for a Gaussian u: that of u <= atanh(action)."""
    z = (np.arctanh(action) - mean) / np.exp(log_std)
    return np.array([(1 + math.erf(number / math.sqrt(2))) / 2 for number in z])


@pytest.mark.parametrize(("mean", "log_std"), PARAMETERS)
def test_the_density_integrates_to_one(mean, log_std):
    # Midpoints, closer together towards the borders, where the density may have peaks.
    edges = np.tanh(np.linspace(-12, 12, 200_001))
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    density = np.exp(one(mean, log_std, len(middle)).log_prob(middle[:, np.newaxis]))
    np.testing.assert_allclose((density * width).sum(), 1, atol=1e-6)


@pytest.mark.parametrize(("mean", "log_std"), PARAMETERS)
def test_the_density_is_the_slope_of_the_distribution(mean, log_std):
    action = np.linspace(-0.99, 0.99, 199)
    step = 1e-6
    slope = (cdf(action + step, mean, log_std) - cdf(action - step, mean, log_std)) / (2 * step)
    log_prob = one(mean, log_std, len(action)).log_prob(action[:, np.newaxis])
    assert log_prob.dtype == tf.float64
    keep = slope > 1e-3  # Below that the difference of two probabilities has too few digits.
    assert keep.sum() > 50
    np.testing.assert_allclose(log_prob[keep], np.log(slope[keep]), atol=1e-5)


def random_distribution(dtype=np.float64):
    rng = np.random.default_rng(0)
    mean, log_std = rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 5, 3)) / 2
    return SquashedGaussian(tf.constant(mean, dtype), tf.constant(log_std, dtype)), rng.normal(size=(4, 5, 3))


def test_samples_and_log_probs_of_several_components():
    distribution, noise = random_distribution()
    action, log_prob = distribution.sample_and_log_prob(noise)
    assert action.shape == (4, 5, 3) and log_prob.shape == (4, 5)
    for row in np.ndindex(4, 5):
        total = 0.0
        for d in range(3):
            mean, log_std, z = distribution.mean[row][d], distribution.log_std[row][d], noise[row][d]
            u = mean + np.exp(log_std) * z
            np.testing.assert_allclose(action[row][d], np.tanh(u))
            # The formula of appendix C, unchanged.
            gaussian = -((u - mean) ** 2) / (2 * np.exp(log_std) ** 2) - log_std - 0.5 * np.log(2 * np.pi)
            total += gaussian - np.log(1 - np.tanh(u) ** 2)
        np.testing.assert_allclose(log_prob[row], total, atol=1e-8)
    np.testing.assert_array_equal(distribution.sample(noise), action)
    np.testing.assert_allclose(distribution.log_prob(action), log_prob, atol=1e-8)
    np.testing.assert_allclose(distribution.mode(), np.tanh(distribution.mean))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_out(dtype):
    """Where tanh rounds to 1, the density and its gradients are still finite and correct."""
    mean = tf.Variable(np.array([[30.0], [-30.0], [400.0], [-400.0]], dtype))
    log_std = tf.Variable(np.zeros((4, 1), dtype))
    with tf.GradientTape(persistent=True) as tape:
        action, log_prob = SquashedGaussian(mean, log_std).sample_and_log_prob(np.ones((4, 1)))
        at_border = SquashedGaussian(mean, log_std).log_prob(np.array([[1.0], [-1.0], [1.0], [-1.0]]))
    np.testing.assert_array_equal(action, [[1], [-1], [1], [-1]])
    # log(1 - tanh(u)^2) is log 4 - 2 |u| out there; u = mean + 1.
    gaussian = -0.5 - 0.5 * math.log(2 * math.pi)
    expected = gaussian - math.log(4) + 2 * np.array([31.0, 29.0, 401.0, 399.0])
    np.testing.assert_allclose(log_prob, expected, rtol=1e-6)
    assert np.isfinite(at_border).all()
    for gradient in (*tape.gradient(log_prob, [mean, log_std]), *tape.gradient(at_border, [mean, log_std])):
        assert np.isfinite(gradient).all()


def test_gradients_of_samples():
    """d action / d mean = 1 - tanh^2, d action / d log_std = (1 - tanh^2) std noise."""
    distribution, noise = random_distribution()
    mean, log_std = distribution
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([mean, log_std])
        action = SquashedGaussian(mean, log_std).sample(noise)
    np.testing.assert_allclose(tape.gradient(action, mean), 1 - np.square(action), atol=1e-10)
    slope = (1 - np.square(action)) * np.exp(log_std) * noise
    np.testing.assert_allclose(tape.gradient(action, log_std), slope, atol=1e-10)


def test_float32_follows_float64():
    wide, noise = random_distribution()
    narrow, _ = random_distribution(np.float32)
    action, log_prob = narrow.sample_and_log_prob(noise)
    assert action.dtype == log_prob.dtype == narrow.mode().dtype == narrow.log_prob(action).dtype == tf.float32
    np.testing.assert_allclose(log_prob, wide.sample_and_log_prob(noise)[1], atol=1e-4)
