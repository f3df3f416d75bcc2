"""The range of distributions of values: it follows the returns seen, as they are learned from."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from linear_updates import random_windows
from small_worlds import layout_of

from callboard.agents.apex import Apex
from callboard.agents.d4pg import D4PG
from callboard.agents.dmpo import DMPO
from callboard.agents.learning.reward_normalizer import RewardNormalizer, returns_discount
from callboard.agents.learning.value_range import ValueRange
from callboard.data import Sample
from callboard.errors import CallboardError
from callboard.nested_settings import from_values
from callboard.specs import EnvironmentSpec

D4PG_SPEC = EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray((1,), np.float32, -1.0, 1.0))


def sample_with(returns: float, reward: float = 0.0) -> Sample:
    """Windows of which one valid transition has that return, and one that reward; what is not valid has more."""
    sample = random_windows(0, 8, 2, lambda rng, shape: rng.uniform(-1, 1, (*shape, 1)))
    valid = np.arange(8) >= 4  # Episodes end in the first half alone.
    record = sample.record._replace(reward=np.where(valid, 0.0, 1e6) * sample.record.last[:-1])
    record.reward[0, 5] = reward
    found = 1e6 * sample.record.last[:-1]
    found[1, 6] = returns
    return sample._replace(record=record, discounted_return=found.astype(np.float32))


def ends(value_range: ValueRange) -> np.ndarray:
    values = value_range.support(11).numpy()
    np.testing.assert_allclose(np.diff(values), values[1] - values[0], rtol=1e-4)
    return values[[0, -1]]


def test_an_end_moves_beyond_returns_that_it_did_not_reach():
    value_range = ValueRange(D4PG())
    np.testing.assert_allclose(ends(value_range), [-1, 1])
    for returns, low, high in ((-100, -150, 0), (-140, -150, 0), (20, -150, 30), (-200, -300, 30), (29, -300, 30)):
        value_range.update(sample_with(returns))
        margin = 0.05 * (high - low)
        np.testing.assert_allclose(ends(value_range), [low - margin, high + margin], rtol=1e-6)


def test_a_reward_counts_as_a_return():
    value_range = ValueRange(D4PG())
    value_range.update(sample_with(0.0, reward=40.0))
    np.testing.assert_allclose(ends(value_range), [-3, 63])


def test_ends_that_are_given_stay():
    one, both = ValueRange(D4PG(value_min=-5.0)), ValueRange(D4PG(value_min=-5.0, value_max=7.0))
    for value_range in (one, both):
        value_range.update(sample_with(-100.0))
        value_range.update(sample_with(100.0))
    np.testing.assert_allclose(ends(one)[0], -5)
    assert ends(one)[1] > 150
    np.testing.assert_allclose(ends(both), [-5, 7])
    assert not both.variables


def test_returns_are_those_of_the_rewards_that_are_learned_from():
    scaled = ValueRange(D4PG(reward_scale=0.1))
    scaled.update(sample_with(-100.0))
    np.testing.assert_allclose(ends(scaled), [-15.75, 0.75])
    clipped = ValueRange(D4PG(reward_clip=1.0, discount=0.9))
    clipped.update(sample_with(-100.0, reward=3.0))
    np.testing.assert_allclose(ends(clipped), [-15 - 0.825, 1.5 + 0.825], rtol=1e-6)
    statistics = RewardNormalizer()
    statistics.update(tf.constant([[-10.0, 10.0]]))
    normalized = ValueRange(D4PG(normalize_rewards=True), statistics)
    normalized.update(sample_with(-100.0))
    np.testing.assert_allclose(ends(normalized), [-15.75, 0.75], rtol=1e-6)


@pytest.mark.parametrize("agent", [D4PG, DMPO, Apex])
def test_replay_keeps_the_returns_that_the_range_follows(agent):
    settings = {"normalize_rewards": False, **({"distribution": "categorical"} if agent is Apex else {})}
    assert returns_discount(from_values(agent, settings)) == 0.99
    assert returns_discount(from_values(agent, {**settings, "value_min": 0.0})) == 0.99
    assert returns_discount(from_values(agent, {**settings, "value_min": 0.0, "value_max": 1.0})) is None
    assert returns_discount(Apex(normalize_rewards=False)) is None


def test_a_policy_acts_with_the_range_that_the_learner_has_found():
    agent = from_values(Apex, {"distribution": "categorical", "network.hidden_sizes": (4,)})
    networks = agent.make_networks(layout_of())
    policy = agent.make_policy(networks, "train")
    assert {variable.ref() for variable in networks.value_range.variables} < {v.ref() for v in policy.variables}


def test_returns_with_another_discount_are_refused_in_one_line():
    agent = D4PG(normalize_rewards=True, normalization_discount=0.9)
    with pytest.raises(CallboardError, match="agent.normalization_discount is another: leave it out") as caught:
        agent.check(layout_of(D4PG_SPEC))
    assert "\n" not in str(caught.value)
