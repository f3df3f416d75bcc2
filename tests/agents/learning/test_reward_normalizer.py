"""Rewards divided by the deviation of discounted returns, in the learner and for initial priorities."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from agent_cases import AGENT_CASES
from small_worlds import layout_of
from update_on_replicas import begin, distribute, made, own_copy, random_sample

from callboard.agents.learning.reward_normalizer import RewardNormalizer, with_normalized_rewards
from callboard.agents.registry import agent_settings
from callboard.agents.settings.shared_settings import RewardSettings
from callboard.data import Record
from callboard.errors import CallboardError
from callboard.settings.nested_settings import declared_fields, with_values
from callboard.transitions import valid_transitions

CASES = [
    case
    for case in AGENT_CASES
    if case.small_updates and issubclass(agent_settings(case.name), RewardSettings) and case.name != "ppo"
]
FAST = ("td3",)
STRATEGY = tf.distribute.get_strategy()
NUMBER, FLAG = tf.TensorSpec((), tf.float32), tf.TensorSpec((), tf.bool)
LAYOUT = layout_of()._replace(record=Record((), FLAG, FLAG, (), NUMBER, NUMBER, (), NUMBER), state=())


def with_returns(sample, seed, scale):
    """A sample with rewards of this scale, and with returns."""
    record = sample.record._replace(reward=(scale * sample.record.reward).astype(np.float32))
    returns = 3 * scale * np.random.default_rng(seed).normal(2.0, 1.0, record.reward.shape)
    return sample._replace(record=record, discounted_return=returns.astype(np.float32))


def normalized_by_hand(samples):
    """The newest sample with the rewards that are learned from after all of these."""
    taken, weights = [], []
    for sample in samples:
        record = sample.record
        valid = valid_transitions(record.first, record.last, record.discount)
        taken.append(sample.discounted_return[valid])
        # Of N items, one that is sampled with the probability P stands for 1 / (N P) of them.
        share = 1 / (sample.info.items * sample.info.probability) if sample.info else 1.0
        weights.append(np.broadcast_to(share, valid.shape)[valid])
    returns, weight = np.concatenate(taken).astype(np.float64), np.concatenate(weights)
    mean = np.average(returns, weights=weight)
    deviation = np.sqrt(np.average((returns - mean) ** 2, weights=weight))
    record = samples[-1].record
    reward = np.clip(record.reward / deviation, -10, 10).astype(np.float32)
    return samples[-1]._replace(record=record._replace(reward=reward), discounted_return=()), deviation


def test_rewards_are_divided_by_the_deviation_of_the_returns_of_valid_transitions_so_far():
    normalizer, samples = RewardNormalizer(), []
    assert normalizer.deviations(2).numpy().tolist() == [1.0, 1.0]
    for seed, scale in enumerate((100.0, 1.0, 0.01)):
        samples.append(with_returns(random_sample(LAYOUT, 3, seed), seed, scale))
        found = normalizer.normalized(samples[-1])
        expected, deviation = normalized_by_hand(samples)
        np.testing.assert_allclose(found.record.reward, expected.record.reward, rtol=1e-5)
        np.testing.assert_allclose(normalizer.deviations(3), [deviation] * 3, rtol=1e-5)
        # What an actor normalizes for initial priorities is the same.
        rows = np.full((samples[-1].record.reward.shape[0] + 1, 8), deviation, np.float32)
        of_actor = with_normalized_rewards(samples[-1].record, rows)
        np.testing.assert_allclose(of_actor.reward, expected.record.reward, rtol=1e-5)
        assert with_normalized_rewards(samples[-1].record, ()) is samples[-1].record


def test_the_deviation_follows_returns_whose_scale_changes_late_in_a_run():
    normalizer = RewardNormalizer()
    rng = np.random.default_rng(3)
    for scale, batches in ((1.0, 60), (100.0, 60)):
        for _ in range(batches):
            normalizer.update((scale * rng.normal(size=(100, 500))).astype(np.float32))
    # The last three million of six; of all of them the deviation is 71.
    assert 95 < float(normalizer.deviations(1)[0]) < 101


def test_a_replay_without_returns_is_named_in_one_line():
    with pytest.raises(CallboardError, match="normalize_rewards needs the discounted returns") as caught:
        RewardNormalizer().normalized(with_returns(random_sample(LAYOUT, 3, 0), 0, 1.0)._replace(discounted_return=()))
    assert "\n" not in str(caught.value)


def test_rewards_beyond_ten_deviations_are_clipped():
    normalizer = RewardNormalizer()
    normalizer.update(tf.constant([[-2.0, 2.0]]))
    np.testing.assert_allclose(normalizer(tf.constant([-100.0, 3.0, 100.0])), [-10.0, 1.5, 10.0], rtol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_replay_keeps_returns_that_are_discounted_as_the_agent_or_by_a_discount_of_their_own(case):
    agent, spec, _ = made(next(iter(case.small_updates)))
    layout = layout_of(spec)
    for changed, expected in (
        ({"discount": 0.5, "normalize_rewards": False}, None),
        ({"discount": 0.5, "normalize_rewards": True}, 0.5),
        ({"discount": 0.5, "normalize_rewards": True, "normalization_discount": 0.75}, 0.75),
        ({"discount": 0.5, "normalize_rewards": True, "normalization_discount": 0.0}, 0.0),
    ):
        replay = with_values(agent, changed).make_replay(layout)
        assert replay.returns_discount == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.name in FAST else pytest.mark.slow) for case in CASES],
)
def test_agents_learn_from_normalized_rewards(case):
    """Two updates, compared with those of an agent without normalization that is given normalized rewards."""
    agent, spec, length = made(next(iter(case.small_updates)))
    if "network.previous_inputs" in declared_fields(agent):
        # The network would take the rewards that are given.
        agent = with_values(agent, {"network.previous_inputs": False})
    if "max_policy_lag" in declared_fields(agent):
        # Otherwise it would drop the second batch, which has the version of the first.
        agent = with_values(agent, {"max_policy_lag": 1})
    given: list[Any] = []
    weights = []
    for normalize in (False, True):
        networks, learner, layout = begin(with_values(agent, {"normalize_rewards": normalize}), spec, STRATEGY, None)
        given = given or [with_returns(random_sample(layout, length, seed), seed, 100.0) for seed in range(2)]
        if case.reads_queue:
            given = [sample._replace(info=()) for sample in given]
        for count, sample in enumerate(given, 1):
            learned = sample if normalize else normalized_by_hand(given[:count])[0]
            learner.step(distribute(STRATEGY, [[learned]]))
        trained = [own_copy(STRATEGY, variable) for variable in networks.variables if variable.trainable]
        weights.append(np.concatenate(trained))
    np.testing.assert_allclose(*weights, rtol=1e-4, atol=1e-6)
