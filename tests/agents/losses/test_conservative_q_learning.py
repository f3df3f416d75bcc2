"""CQL's penalty against loops over numbers, and integrals that are known."""

import math

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.conservative_q_learning import conservative_gap, discrete_conservative_gap


def test_the_gap_of_sampled_actions():
    rng = np.random.default_rng(0)
    q_sampled, log_density = rng.normal(size=(2, 7, 4))
    q, valid = rng.normal(size=7), rng.random(7) < 0.6
    found = conservative_gap(q_sampled, log_density, q, valid)
    for b in range(7):
        total = sum(math.exp(q_sampled[b, i] - log_density[b, i]) for i in range(4)) / 4
        np.testing.assert_allclose(found[b], math.log(total) - q[b] if valid[b] else 0.0, rtol=1e-12)
    with pytest.raises(ValueError, match="shape"):
        conservative_gap(q_sampled, log_density[:, :2], q, valid)


def test_the_first_term_estimates_an_integral_over_actions_whatever_they_are_sampled_from():
    rng = np.random.default_rng(1)
    uniform, normal = rng.uniform(-1, 1, 20_000), rng.normal(0.0, 0.6, 20_000)
    actions = np.concatenate([uniform, normal])
    inside = np.abs(actions) <= 1
    value = np.where(inside, 2 * actions, -np.inf)
    density = -(normal**2) / 0.72 - math.log(0.6 * math.sqrt(2 * math.pi))
    log_density = np.concatenate([np.full(20_000, -math.log(2)), density])
    # The integral of exp(2 a) from -1 to 1 is sinh(2).
    found = conservative_gap(value[None], log_density[None], [0.0], [True])
    np.testing.assert_allclose(found[0], math.log(math.sinh(2.0)), atol=0.02)


def test_the_gap_of_discrete_actions_is_over_legal_ones():
    rng = np.random.default_rng(0)
    q_all, q, valid = rng.normal(size=(7, 3)), rng.normal(size=7), rng.random(7) < 0.6
    legal = rng.random((7, 3)) < 0.7
    legal[:, 0] = True
    for allowed in (None, legal):
        found = discrete_conservative_gap(q_all, q, valid, allowed)
        for b in range(7):
            total = sum(math.exp(q_all[b, a]) for a in range(3) if allowed is None or allowed[b, a])
            np.testing.assert_allclose(found[b], math.log(total) - q[b] if valid[b] else 0.0, rtol=1e-9)


def test_gradients_lower_sampled_values_and_raise_the_recorded_one():
    q_sampled, q, density = tf.constant([[0.0, 1.0]]), tf.constant([0.5]), tf.constant([[0.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch([q_sampled, q, density])
        gap = conservative_gap(q_sampled, density, q, [True])
    of_sampled, of_q, of_density = tape.gradient(gap, [q_sampled, q, density])
    np.testing.assert_allclose(of_sampled, [[1 / (1 + math.e), math.e / (1 + math.e)]], rtol=1e-6)
    assert of_q.numpy().tolist() == [-1.0] and of_density is None
