"""Distributional values: the projection and the loss against algorithm 1 of Bellemare et al. 2017."""

import math

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.categorical import categorical_loss, mean_value, projected_target, support

BATCH, ATOMS, LOW, HIGH = 40, 7, -3.0, 1.5


def random_batch(seed=0):
    rng = np.random.default_rng(seed)
    terminated = rng.random(BATCH) < 0.3
    logits = rng.normal(size=(2, BATCH, ATOMS))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    return 2 * rng.normal(size=BATCH), 0.9 * ~terminated, probabilities[0], logits[1], rng.random(BATCH) < 0.7


def algorithm_1(reward, discount, probabilities):
    """One transition of the paper's algorithm 1."""
    gap = (HIGH - LOW) / (ATOMS - 1)
    target = np.zeros(ATOMS)
    for j in range(ATOMS):
        moved = min(HIGH, max(LOW, reward + discount * (LOW + j * gap)))
        b = (moved - LOW) / gap
        lower, upper = math.floor(b + 1e-9), math.ceil(b - 1e-9)
        if lower == upper:
            # The paper's algorithm loses the probability of an atom that falls on another one.
            target[lower] += probabilities[j]
        else:
            target[lower] += probabilities[j] * (upper - b)
            target[upper] += probabilities[j] * (b - lower)
    return target


def test_the_projection_is_that_of_algorithm_1():
    reward, discount, probabilities, *_ = random_batch()
    values = support(LOW, HIGH, ATOMS, tf.float64)
    np.testing.assert_allclose(values, np.linspace(LOW, HIGH, ATOMS))
    target = projected_target(reward, discount, probabilities, values)
    assert target.dtype == tf.float64
    for b in range(BATCH):
        np.testing.assert_allclose(target[b], algorithm_1(reward[b], discount[b], probabilities[b]), atol=1e-9)
    np.testing.assert_allclose(tf.reduce_sum(target, axis=-1), np.ones(BATCH), rtol=1e-12)


def test_the_projection_keeps_the_mean_of_what_is_within_the_support():
    reward, discount, probabilities, *_ = random_batch()
    values = support(LOW, HIGH, ATOMS, tf.float64)
    reward = 0.1 * np.tanh(reward)
    target = projected_target(reward, discount, probabilities, values)
    means = reward + discount * (probabilities * values.numpy()).sum(axis=-1)
    np.testing.assert_allclose((target * values).numpy().sum(axis=-1), means, rtol=1e-10)


def test_after_a_termination_the_target_is_the_reward_whatever_the_next_distribution_is():
    values = support(LOW, HIGH, ATOMS, tf.float64)
    target = projected_target([0.75, 9.0], [0.0, 0.0], np.full((2, ATOMS), np.nan), values)
    np.testing.assert_allclose((target * values).numpy().sum(axis=-1), [0.75, HIGH])


def test_the_loss_is_a_cross_entropy_whose_gradient_is_the_difference_of_both():
    reward, discount, probabilities, logits, is_valid = random_batch(1)
    values, variable = support(LOW, HIGH, ATOMS, tf.float64), tf.Variable(logits)
    with tf.GradientTape() as tape:
        target = projected_target(reward, discount, probabilities, values)
        loss = categorical_loss(variable, target, is_valid)
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    for b in range(BATCH):
        expected = -sum(target[b, i] * log_p[b, i] for i in range(ATOMS)) if is_valid[b] else 0.0
        np.testing.assert_allclose(loss[b], expected, rtol=1e-12)
    gradient = np.where(is_valid[:, np.newaxis], np.exp(log_p) - target, 0.0)
    np.testing.assert_allclose(tape.gradient(loss, variable), gradient, atol=1e-12)


def test_the_mean_of_a_distribution():
    values = support(0.0, 2.0, 3, tf.float64)
    np.testing.assert_allclose(mean_value(np.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]), values), [0.75, 1.7])


def test_wrong_shapes_are_named():
    values = support(LOW, HIGH, ATOMS)
    with pytest.raises(ValueError, match="r_t"):
        projected_target(np.zeros(3), np.zeros(4), np.ones((4, ATOMS)), values)
    with pytest.raises(ValueError, match="target"):
        categorical_loss(np.zeros((4, ATOMS)), np.zeros((4, 2)), np.ones(4, bool))
