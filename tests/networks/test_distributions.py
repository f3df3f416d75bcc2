"""The categorical distribution against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.networks.distributions import Categorical

LOGITS = np.random.default_rng(0).normal(size=(3, 4, 5)) * 2


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
