"""Priorities and importance weights against loops, and unbiasedness by enumerating every sample."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from episodes import is_experience, random_timesteps

from callboard.agents.losses.prioritization import importance_weights, mixed_priority
from callboard.transitions import valid_transitions

STEPS, BATCH = 8, 30


@pytest.mark.parametrize("eta", [0.0, 0.9, 1.0])
def test_mixed_priority(eta):
    rng = np.random.default_rng(0)
    timesteps = random_timesteps(rng, STEPS, BATCH)
    delta = rng.normal(size=(STEPS, BATCH))
    # What does not count has the largest error, or none at all.
    is_valid = valid_transitions(*timesteps)
    delta[~is_valid] = np.where(rng.random((~is_valid).sum()) < 0.5, 100.0, np.nan)
    result = mixed_priority(delta, is_valid, eta)
    assert result.dtype == tf.float64
    for b in range(BATCH):
        sizes = [abs(delta[t, b]) for t in range(STEPS) if is_experience(*timesteps, t, b)]
        np.testing.assert_allclose(result[b], eta * max(sizes) + (1 - eta) * sum(sizes) / len(sizes), atol=1e-12)


def test_mixed_priority_by_hand():
    delta = np.array([[1.0, -4.0, 3.0], [-3.0, 2.0, 5.0]], np.float32)
    is_valid = np.array([[True, True, False], [True, False, False]])
    result = mixed_priority(delta, is_valid)
    assert result.dtype == tf.float32
    np.testing.assert_allclose(result, [0.9 * 3 + 0.1 * 2, 4.0, 0.0], rtol=1e-6)


def test_weights_by_hand():
    probability = np.array([0.5, 0.125, 0.25])
    np.testing.assert_allclose(importance_weights(probability, 4, 1.0), [0.5, 2.0, 1.0])
    np.testing.assert_allclose(importance_weights(probability, 4, 0.5), [0.5**0.5, 2**0.5, 1.0])
    np.testing.assert_allclose(importance_weights(probability, 4, 0.0), [1.0, 1.0, 1.0])
    np.testing.assert_allclose(importance_weights(probability, 4, 1.0, tf.reduce_max), [0.25, 1.0, 0.5])
    # Items of one batch may come from tables of different sizes, and beta may change during a run.
    result = importance_weights(probability.astype(np.float32), np.array([4, 8, 2]), tf.constant(1.0, tf.float64))
    assert result.dtype == tf.float32
    np.testing.assert_allclose(result, [0.5, 1.0, 2.0])


@pytest.mark.slow("daily")
def test_one_divisor_for_items_of_two_tables_keeps_their_shares():
    """Half of a batch from a small table of equal priorities, half from a large one of very unequal ones."""
    rng = np.random.default_rng(2)
    tables = [np.full(10, 0.1), rng.pareto(1.0, 500)]
    totals = np.zeros(2)
    for _ in range(300):
        sampled = [rng.choice(table / table.sum(), 32, p=table / table.sum()) for table in tables]
        sizes = np.repeat([len(table) for table in tables], 32)
        weights = importance_weights(np.concatenate(sampled), sizes, 1.0, tf.reduce_max).numpy().reshape(2, 32)
        totals += (weights / weights[0, 0]).sum(axis=1)  # The divisor of the batch, in units of the equal table.
    np.testing.assert_allclose(totals / (300 * 32), 1.0, rtol=0.1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_probability_of_zero_gives_a_finite_weight(dtype):
    for beta in (0.4, 1.0):
        weights = importance_weights(np.array([0.0, 0.5], dtype), 10, beta, tf.reduce_max).numpy()
        assert weights[0] == 1 and 0 <= weights[1] < 1e-3
        assert np.isfinite(importance_weights(np.array([0.0, 0.5], dtype), 10, beta)).all()


def test_they_equal_the_loop():
    rng = np.random.default_rng(1)
    probability = rng.dirichlet(np.ones(50))[:20]
    weights = [(1 / 50 * 1 / p) ** 0.4 for p in probability]
    np.testing.assert_allclose(importance_weights(probability, 50, 0.4), weights, rtol=1e-12)
    largest = max(weights)
    np.testing.assert_allclose(
        importance_weights(probability, 50, 0.4, tf.reduce_max), [weight / largest for weight in weights], rtol=1e-12
    )


def test_unbiased():
    """The expectation over every batch of three that can be sampled is the plain mean over the items."""
    priority, quantity = np.array([1.0, 0.1, 7.0, 2.5, 0.4]), np.array([3.0, -20.0, 5.0, 0.5, 8.0])
    probability = priority**0.6 / (priority**0.6).sum()
    expectation = plain = 0.0
    for batch in itertools.product(range(5), repeat=3):
        chance = np.prod(probability[list(batch)])
        weights = importance_weights(probability[list(batch)], 5, 1.0)
        expectation += chance * np.mean(weights * quantity[list(batch)])
        plain += chance * np.mean(quantity[list(batch)])
    np.testing.assert_allclose(expectation, quantity.mean(), atol=1e-12)
    assert abs(plain - quantity.mean()) > 0.5


def test_unbiased_over_two_shards():
    """An item's probability is that of its shard times that within it, and N is the number of items of both."""
    priorities = [np.array([1.0, 2.0, 0.5]), np.array([10.0, 30.0])]
    quantities = [np.array([3.0, -4.0, 1.0]), np.array([7.0, 2.0])]
    mass = np.array([priority.sum() for priority in priorities])
    expectation = 0.0
    for shard, (priority, quantity) in enumerate(zip(priorities, quantities, strict=True)):
        probability = mass[shard] / mass.sum() * priority / priority.sum()
        expectation += np.sum(probability * importance_weights(probability, 5, 1.0) * quantity)
    np.testing.assert_allclose(expectation, np.concatenate(quantities).mean(), atol=1e-12)


def test_no_gradients_flow():
    delta, probability = tf.Variable([[1.0], [2.0]]), tf.Variable([0.5, 0.25])
    with tf.GradientTape() as tape:
        priority = mixed_priority(delta, [[True], [True]])
        weights = importance_weights(probability, 4, 1.0, tf.reduce_max)
    assert tape.gradient([priority, weights], [delta, probability]) == [None, None]


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match="probability has shape"):
        importance_weights(np.ones((3, 1)), 3, 1.0)
    with pytest.raises(ValueError, match="delta_t .*valid_t"):
        mixed_priority(np.ones((3, 2)), np.ones((3, 1), bool))
