"""Distributions: the categorical one against NumPy, the Gaussians against integration and differentiation."""

import math

import numpy as np
import pytest
import tensorflow as tf
from gpu_kernels import nodes_of, without_kernel

from callboard.networks.distributions import Categorical, DiagonalGaussian, SquashedGaussian

LOGITS = np.random.default_rng(0).normal(size=(3, 4, 5)) * 2
PARAMETERS = [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5), (2.0, -0.3)]

# Categorical.


def softmax(logits):
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(-1, keepdims=True)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_quantities(dtype, tolerance):
    distribution = Categorical(tf.constant(LOGITS, dtype))
    probs, others = softmax(LOGITS), softmax(LOGITS[::-1])
    actions = np.arange(12).reshape(3, 4) % 5
    log_prob = distribution.log_prob(actions)
    assert log_prob.dtype == dtype
    expected = np.log(np.take_along_axis(probs, actions[..., np.newaxis], -1)[..., 0])
    np.testing.assert_allclose(log_prob, expected, atol=tolerance)
    np.testing.assert_allclose(distribution.log_probs(), np.log(probs), atol=tolerance)
    np.testing.assert_allclose(distribution.entropy(), -(probs * np.log(probs)).sum(-1), atol=tolerance)
    kl = distribution.kl(Categorical(tf.constant(LOGITS[::-1], dtype)))
    np.testing.assert_allclose(kl, (probs * np.log(probs / others)).sum(-1), atol=tolerance)
    np.testing.assert_array_equal(distribution.mode(), probs.argmax(-1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_follow_the_probabilities(dtype):
    number = 40_000
    logits = np.array([0.0, 1.0, -1.0, 2.0], dtype)
    actions = Categorical(tf.tile(tf.constant(logits)[tf.newaxis], (number, 1))).sample((3, 4)).numpy()
    probs = softmax(logits)
    frequencies = np.bincount(actions, minlength=4) / number
    # Four standard deviations of a frequency.
    assert (np.abs(frequencies - probs) < 4 * np.sqrt(probs * (1 - probs) / number)).all()


def test_a_seed_fixes_the_sample():
    distribution = Categorical(tf.zeros((20, 30, 4)))
    first = distribution.sample((1, 2))
    assert first.shape == (20, 30) and first.dtype == tf.int32
    np.testing.assert_array_equal(first, distribution.sample(tf.constant([1, 2])))
    assert (first.numpy() != distribution.sample((1, 3)).numpy()).any()
    assert distribution.sample((1, 2), tf.int64).dtype == tf.int64


def test_parts_with_seeds_of_their_own_are_sampled_as_if_alone():
    logits, seeds = LOGITS.reshape(6, 2, 5), np.array([[1, 2], [1, 3], [9, 2]], np.int32)
    together = tf.function(lambda seeds: Categorical(tf.constant(logits)).sample(seeds), autograph=False)(seeds)
    alone = [Categorical(part).sample(seed) for part, seed in zip(np.split(logits, 3), seeds, strict=True)]
    np.testing.assert_array_equal(together, np.concatenate(alone))


def test_choices_are_sampled_and_weighed_on_a_gpu():
    @tf.function(autograph=False)
    def sampled(logits, seed, action):
        policy = Categorical(logits)
        action = action + tf.cast(policy.logits[:, 0], action.dtype)
        return policy.log_prob(policy.sample(seed)), policy.log_prob(action)

    specs = [((None, 3), tf.float32), ((2, 2), tf.int64), ((None,), tf.int64)]
    graph = sampled.get_concrete_function(*(tf.TensorSpec(*spec) for spec in specs))
    assert without_kernel(nodes_of(graph)) == set()


def test_actions_ruled_out():
    logits = tf.Variable([[0.0, 0.0, -1e9]], dtype=tf.float64)
    with tf.GradientTape() as tape:
        entropy = Categorical(logits).entropy()
    np.testing.assert_allclose(entropy, [np.log(2)])
    assert np.isfinite(tape.gradient(entropy, logits)).all()
    np.testing.assert_allclose(Categorical(logits).kl(Categorical(tf.zeros((1, 3), tf.float64))), [np.log(1.5)])


def test_it_is_a_nest():
    """Distributions can be arguments and results of a `tf.function`."""
    doubled = tf.function(lambda categorical: Categorical(categorical.logits * 2))(Categorical(tf.ones((2, 3))))
    assert isinstance(doubled, Categorical)
    np.testing.assert_allclose(doubled.logits, np.full((2, 3), 2.0))


# Gaussian.


def test_density_integrates_to_one_and_gives_the_entropy():
    std, mean = np.array([0.5, 2.0]), np.array([1.0, -3.0])
    grid = np.stack(np.meshgrid(*(m + s * np.linspace(-8, 8, 801) for m, s in zip(mean, std, strict=True))), axis=-1)
    cell = np.prod(std) * 0.02**2
    policy = DiagonalGaussian(tf.constant(mean), tf.constant(np.log(std)))
    log_prob = policy.log_prob(grid).numpy()
    assert (np.exp(log_prob) * cell).sum() == pytest.approx(1, abs=1e-9)
    assert -(np.exp(log_prob) * log_prob * cell).sum() == pytest.approx(policy.entropy().numpy(), abs=1e-8)
    np.testing.assert_allclose(grid.reshape(-1, 2)[log_prob.argmax()], policy.mode(), atol=1e-12)


def test_samples_have_the_mean_and_the_deviation():
    noise = np.random.default_rng(0).normal(size=(200_000, 2))
    policy = DiagonalGaussian(tf.constant([[1.0, -3.0]], tf.float64), tf.constant(np.log([[0.5, 2.0]])))
    samples = policy.sample(noise).numpy()
    np.testing.assert_allclose(samples.mean(0), [1.0, -3.0], atol=0.02)
    np.testing.assert_allclose(samples.std(0), [0.5, 2.0], rtol=0.01)


# Squashed Gaussian.


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
