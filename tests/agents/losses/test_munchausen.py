"""Munchausen's bonus and soft values against loops written from the paper."""

import numpy as np
import pytest

from callboard.agents.losses.munchausen import expected_value, munchausen_bonus, munchausen_steps, soft_value
from callboard.agents.losses.n_step import NStep

BATCH, ACTIONS = 12, 4
RNG = np.random.default_rng(0)
Q_0, Q_N = RNG.normal(size=(2, BATCH, ACTIONS))


def policy_of(q, tau):
    weights = [np.exp(value / tau) for value in q]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("tau", [0.03, 1.0])
def test_the_bonus_is_the_clipped_and_scaled_log_policy_of_the_action(tau):
    action = RNG.integers(ACTIONS, size=BATCH)
    expected = [0.9 * min(0.0, max(-1.0, tau * np.log(policy_of(Q_0[b], tau)[action[b]]))) for b in range(BATCH)]
    found = munchausen_bonus(Q_0, action, 0.9, tau, 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert min(expected) == -0.9 and max(expected) > -0.9


@pytest.mark.parametrize("tau", [0.03, 1.0])
def test_the_target_is_that_of_the_paper(tau):
    returns, discount, bonus = RNG.normal(size=(3, BATCH))
    discount = np.where(np.arange(BATCH) % 3, np.abs(discount), 0.0)
    steps, policy = munchausen_steps(NStep(returns, discount, np.zeros(BATCH, int), None), bonus, Q_N, tau)
    expected = []
    for b in range(BATCH):
        pi = policy_of(Q_N[b], tau)
        soft = sum(pi[a] * (Q_N[b, a] - tau * np.log(pi[a])) for a in range(ACTIONS) if pi[a] > 0)
        np.testing.assert_allclose(policy[b], pi, rtol=1e-9)
        np.testing.assert_allclose(soft_value(Q_N, tau)[b], soft, rtol=1e-9)
        expected.append(returns[b] + bonus[b] + discount[b] * soft)
    found = steps.returns + steps.discount * expected_value(policy, Q_N)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_masked_actions_and_what_follows_a_termination_do_not_matter():
    q = np.array([[1.0, -1e9, 2.0], [np.nan, np.inf, 0.0]], np.float32)
    steps = NStep(np.array([3.0, 4.0], np.float32), np.array([0.5, 0.0], np.float32), np.zeros(2, int), None)
    found, policy = munchausen_steps(steps, np.zeros(2, np.float32), q, 0.03)
    np.testing.assert_allclose(policy[0], [0.0, 0.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(found.returns, [3.0, 4.0], rtol=1e-5)
