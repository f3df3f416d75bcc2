"""Importance sampling against loops over numbers, and a value that is known."""

import numpy as np
import pytest

from callboard.environments.recorded.importance_sampling import importance_sampling

REWARDS = [np.array([1.0, 2.0]), np.array([3.0]), np.array([-1.0, 0.5, 4.0])]
LOG_RATIOS = [np.array([0.1, -0.3]), np.array([0.7]), np.array([0.0, 0.2, -0.1])]


@pytest.mark.parametrize("weighted", [False, True])
def test_estimates_are_those_of_the_paper(weighted):
    expected = 0.0
    for t in range(3):
        gained = scale = 0.0
        for rewards, ratios in zip(REWARDS, LOG_RATIOS, strict=True):
            ratio = 1.0
            for s in range(min(t + 1, len(rewards))):
                ratio *= np.exp(ratios[s])
            scale += ratio / 3
            gained += ratio * (rewards[t] if t < len(rewards) else 0.0) / 3
        expected += 0.9**t * gained / (scale if weighted else 1.0)
    found = importance_sampling(REWARDS, LOG_RATIOS, 0.9, weighted)
    assert found.value == pytest.approx(expected)
    assert found.error > 0 and 1 < found.effective_episodes <= 3


def test_the_same_policy_has_the_mean_return():
    found = importance_sampling(REWARDS, [np.zeros_like(one) for one in REWARDS], 1.0)
    assert found.value == pytest.approx(9.5 / 3) and found.effective_episodes == pytest.approx(3)


def test_both_find_the_value_of_another_policy():
    # Each of two actions gives 0 or 1; the policy that acted takes 1 in half of the cases, the other one in 80 percent.
    actions = np.random.default_rng(0).integers(2, size=(4000, 3))
    ratios = np.log(np.where(actions, 0.8, 0.2) / 0.5)
    true = 0.8 * (1 + 0.9 + 0.81)
    for weighted in (False, True):
        found = importance_sampling(list(actions.astype(float)), list(ratios), 0.9, weighted)
        assert abs(found.value - true) < 4 * found.error and found.error < 0.1


def test_episodes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="same, non-empty"):
        importance_sampling([], [], 0.9)
    with pytest.raises(ValueError, match="same, non-empty"):
        importance_sampling(REWARDS, [*LOG_RATIOS[:2], np.zeros(2)], 0.9)
