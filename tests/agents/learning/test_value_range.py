"""The range of distributions of values: it follows the returns seen, as they are learned from."""

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from linear_updates import random_windows
from slow_cases import slow_but
from small_worlds import layout_of

from callboard.agents.apex import Apex
from callboard.agents.d4pg import D4PG
from callboard.agents.dmpo import DMPO
from callboard.agents.learning.reward_normalizer import RewardNormalizer, returns_discount
from callboard.agents.learning.value_range import ValueRange
from callboard.data import Sample
from callboard.errors import CallboardError
from callboard.settings.nested_settings import from_values
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
    value_range.settle()
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
    clipped.update(sample_with(-100.0, reward=1.0))
    np.testing.assert_allclose(ends(clipped), [-0.075, 1.575], rtol=1e-6)


def test_the_first_sparse_reward_is_not_divided_by_a_deviation_of_zero():
    statistics = RewardNormalizer()
    statistics.update(tf.zeros((10, 1000)))
    value_range = ValueRange(DMPO(), statistics)
    sample = sample_with(1.0, reward=1.0)
    value_range.update(statistics.normalized(sample._replace(info=())))
    assert 10.0 < ends(value_range)[1] <= 1.05 * 15.0


class Loop:
    """The range by explicit loops over numbers."""

    def __init__(self, discount: float):
        self.discount, self.ends = discount, [0.0, 0.0]
        self.reset()

    def reset(self):
        self.shown, self.rewards, self.transitions = [0.0, 0.0], [0.0, 0.0], 0

    def update(self, numbers, rewards):
        for number in numbers:
            self.shown = [min(self.shown[0], number), max(self.shown[1], number)]
        if min(numbers) < self.ends[0]:
            self.ends[0] = 1.5 * min(numbers)
        if max(numbers) > self.ends[1]:
            self.ends[1] = 1.5 * max(numbers)
        self.rewards = [min(self.rewards[0], *rewards), max(self.rewards[1], *rewards)]
        self.transitions += len(rewards)
        if self.transitions >= 100_000:
            for end in range(2):
                if abs(self.ends[end]) > 10 * abs(self.shown[end]):
                    self.ends[end] = 1.5 * self.shown[end]
            self.reset()

    def follow(self, target, values):
        for row in target:
            mean = sum(p * v for p, v in zip(row, values, strict=True))
            self.shown = [min(self.shown[0], mean), max(self.shown[1], mean)]
        for end, column in enumerate((0, -1)):
            if sum(row[column] for row in target) / len(target) > 2.5 / len(values):
                limit = self.rewards[end] / (1 - self.discount)
                moved = min(1.5 * abs(self.ends[end]), abs(limit))
                self.ends[end] = max(abs(self.ends[end]), moved) * (-1, 1)[end]


def batch_of(rng, size: float, batch: int) -> Sample:
    """Windows of one step, all valid."""
    sample = random_windows(0, batch, 1, lambda rng, shape: rng.uniform(-1, 1, (*shape, 1)))
    never = np.zeros((2, batch), bool)
    reward = (size * rng.normal(size=(1, batch))).astype(np.float32)
    discount = np.ones((1, batch), np.float32)
    record = sample.record._replace(reward=reward, first=never, last=never, discount=discount)
    return sample._replace(record=record, discounted_return=2 * reward)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("seed", slow_but(range(3), 0))
def test_the_range_is_that_of_an_independent_loop(seed):
    rng = np.random.default_rng(seed)
    value_range, loop = ValueRange(D4PG(discount=0.9)), Loop(0.9)
    moved, shrunk, before = 0, 0, [0.0, 0.0]
    for number in range(40):
        sample = batch_of(rng, (100.0, 1.0)[number >= 10], 9_000)
        reward = sample.record.reward[0].astype(float)
        value_range.update(sample)
        loop.update([*reward, *(2 * reward)], reward)
        shrunk += loop.ends[1] < before[1]
        value_range.settle()
        values = value_range.support(11).numpy()
        peak = rng.integers(0, 11) if number % 3 else 10
        logits = rng.normal(size=(8, 11)) + 3.0 * (np.arange(11) == peak) * (number > 5)
        target = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
        before = list(loop.ends)
        # Late targets show nothing, so that the ends can shrink.
        target = np.eye(11, dtype=np.float32)[[np.abs(values).argmin()] * 8] if number >= 15 else target
        value_range.follow(tf.constant(target), tf.constant(values), tf.fill((8,), True))
        loop.follow(target.astype(float), values.astype(float))
        moved += loop.ends != before
        before = list(loop.ends)
        low, high = loop.ends
        np.testing.assert_allclose(
            ends(value_range), [low - 0.05 * (high - low), high + 0.05 * (high - low)], rtol=1e-4
        )
    assert moved and shrunk


def test_targets_at_an_end_move_it_as_far_as_rewards_allow():
    value_range = ValueRange(D4PG(discount=0.99))
    value_range.update(sample_with(20.0, reward=1.0))
    target = tf.constant(np.eye(11, dtype=np.float32)[[10] * 8])
    for _ in range(20):
        value_range.follow(target, value_range.support(11), tf.fill((8,), True))
    np.testing.assert_allclose(ends(value_range), [-5.0, 105.0], rtol=1e-5)
    value_range.follow(target[:, ::-1], value_range.support(11), tf.fill((8,), True))
    np.testing.assert_allclose(ends(value_range), [-5.0, 105.0], rtol=1e-5)


def peaked_layer(values: np.ndarray, centers: np.ndarray) -> tf.Module:
    """A critic of distributions around each center, one for each feature; its target begins as it."""
    critic = tf.Module()
    critic.layer = tf.keras.layers.Dense(len(values), use_bias=True)
    critic.layer.build((None, len(centers)))
    critic.layer.kernel.assign(-0.5 * np.square((values - centers[:, np.newaxis]) / (2 * (values[1] - values[0]))))
    critic.atom_layers = [critic.layer]
    return critic


def means_of(critic: tf.Module, values: np.ndarray) -> np.ndarray:
    logits = critic.layer(tf.eye(critic.layer.kernel.shape[0])).numpy().astype(float)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers @ values / powers.sum(axis=1)


def moved_means(low: float, high: float, show: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Means of two critics' distributions before and after the range moves from `low` and `high`; the wider spacing."""
    value_range = ValueRange(D4PG(discount=0.99))
    for end in (low, high):
        value_range.update(sample_with(0.0, reward=end / 1.5))
        value_range.settle()
    values = value_range.support(51).numpy().astype(float)
    centers = np.linspace(0.7 * low, 0.7 * high, 5)
    critics = peaked_layer(values, centers), peaked_layer(values, centers)
    before = means_of(critics[0], values)
    show(value_range, values)
    value_range.settle(*critics)
    found = value_range.support(51).numpy().astype(float)
    assert not np.allclose(found, values)
    after = means_of(critics[0], found)
    np.testing.assert_array_equal(means_of(critics[1], found), after)
    return before, after, max(found[1] - found[0], values[1] - values[0])


@pytest.mark.slow("daily")
@pytest.mark.parametrize("end", [0, 1])
def test_values_grow_with_an_end_at_which_targets_gather(end):
    def gather(value_range, values):
        value_range.follow(tf.constant(np.eye(51)[[50 * end] * 8]), values, tf.fill((8,), True))

    lowest, highest = ((-30.0, 0.0), (0.0, 30.0))[end]
    before, after, _ = moved_means(lowest, highest, gather)
    np.testing.assert_allclose(after, 1.5 * before, rtol=1e-5)
    # Otherwise in proportion to their distance from the end that stays.
    before, after, _ = moved_means(-30.0, 30.0, gather)
    other = (30.0, -30.0)[end]
    np.testing.assert_allclose(after - other, (before - other) * 75.0 / 60.0, atol=2.0)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("reward, growth", [(35.0, 1.75), (300.0, 2.0), (-35.0, 1.75), (-300.0, 2.0)])
def test_values_at_most_double_where_a_return_is_far_beyond(reward, growth):
    lowest, highest = sorted([0.0, float(np.copysign(30.0, reward))])
    before, after, spacing = moved_means(lowest, highest, lambda each, _: each.update(sample_with(0.0, reward=reward)))
    np.testing.assert_allclose(after, growth * before, atol=spacing)


def test_values_stay_where_an_end_shrinks():
    values, shrunk = np.linspace(-5.0, 105.0, 51), []
    value_range = ValueRange(D4PG(discount=0.99))
    value_range.update(sample_with(0.0, reward=100.0 / 1.5))
    critic = peaked_layer(values, np.array([2.0, 4.0, 6.0]))
    before = means_of(critic, values)
    for number in range(3):
        value_range.update(batch_of(np.random.default_rng(number), 1.0, 100_000))
        value_range.settle(critic)
        shrunk.append(value_range.support(51).numpy().astype(float))
    assert shrunk[-1][-1] < 20
    np.testing.assert_allclose(means_of(critic, shrunk[-1]), before, atol=2.2)


def test_weights_and_checkpoints_hold_the_ends_alone():
    value_range = ValueRange(D4PG())
    names = {"lowest_return:0", "highest_return:0"}
    assert {variable.name for variable in value_range.variables} == names
    saved = tf.train.Checkpoint(range=value_range)
    assert {each.name for each in tf.train.TrackableView(saved).descendants() if isinstance(each, tf.Variable)} == names


@pytest.mark.slow
def test_the_range_does_not_depend_on_the_number_of_replicas(on_two_devices):
    program = pathlib.Path(__file__).parents[1] / "update_on_replicas.py"
    agents = ["d4pg", "dmpo", "apex-categorical"]
    ranges = on_two_devices(program, "ranges_on_devices", ["1", "2"], agents)
    for agent in agents:
        assert len({tuple(ends) for ends in ranges["1"][agent]}) > 2
        np.testing.assert_allclose(ranges["2"][agent], ranges["1"][agent], rtol=1e-5)


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
