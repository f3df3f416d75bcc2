"""PPO's rollouts: values, advantages and rewards of a batch, and its minibatches."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from ppo_samples import CONTINUOUS, DISCRETE, random_sample
from small_worlds import FixedNetwork

from callboard.agents.learning.network_inputs import Carried
from callboard.agents.policies.ppo_policy import PpoNetworks
from callboard.agents.ppo import Ppo
from callboard.agents.ppo_rollout import Rollout, make_rollout, select_minibatch
from callboard.networks.heads import PolicyValue
from callboard.networks.recurrent import LSTMState
from callboard.settings.nested_settings import from_values


class WatchingNetwork(FixedNetwork):
    """Remembers what it was shown."""

    def __init__(self, state_spec):
        super().__init__(None, state_spec)
        self.shown: list[Any] = []

    def unroll(self, shown, state, first, training=False):
        self.shown.append((shown.observation.numpy(), state))
        shape = first.shape
        return PolicyValue(tf.zeros((*shape, 3)), tf.zeros(shape)), state


@pytest.mark.slow("daily")
@pytest.mark.parametrize("core", ["none", "lstm"])
def test_an_epoch_sees_everything_once_in_an_order_of_its_own(core):
    agent = from_values(
        Ppo,
        {
            "unroll_length": 4,
            "batch_size": 6,
            "minibatches": 3,
            "network.core": core,
            "network.lstm_size": 1,
            "normalize_rewards": False,
        },
    )
    sample = random_sample(np.random.default_rng(0), agent, DISCRETE)
    number = np.arange(5 * 6, dtype=np.float32).reshape(5, 6, 1).repeat(2, axis=-1)
    state = LSTMState(*(np.arange(6, dtype=np.float32).reshape(6, 1),) * 2) if core == "lstm" else ()
    sample = sample._replace(record=sample.record._replace(observation=number), state=state)
    network = WatchingNetwork(state)
    networks = PpoNetworks(network, DISCRETE, False)
    rollout = agent.rollout(networks, [tree.map_structure(tf.constant, sample)], [tf.zeros((5, 6))])

    def epoch(seed):
        network.shown = []
        for part in range(3):
            minibatch = select_minibatch(rollout, 3, tf.constant(part), tf.constant(seed, tf.int64))
            agent.loss(networks, minibatch, tf.constant(0.2))
        return network.shown

    shown = epoch([1, 5])
    order = np.concatenate([observation[..., 0].ravel() for observation, _ in shown])
    assert sorted(order) == list(range(24))
    for observation, state in shown:
        if core == "lstm":
            # Whole sequences, each with its state.
            assert observation.shape == (4, 2, 2)
            np.testing.assert_array_equal(observation[..., 0] % 6, np.tile(state.cell[:, 0], (4, 1)))
        else:
            assert observation.shape == (1, 8, 2)

    def order_of(seed):
        return np.concatenate([observation[..., 0].ravel() for observation, _ in epoch(seed)]).tolist()

    assert order_of([1, 5]) == order.tolist()
    assert order_of([1, 6]) != order.tolist() and order_of([2, 5]) != order.tolist()


def test_a_rollout_keeps_its_fields_in_line():
    """Every field of a rollout is reordered together: none may be without the axes `[T, B]`."""
    agent = Ppo(unroll_length=4, batch_size=6)
    networks = PpoNetworks(FixedNetwork(None), CONTINUOUS, True)
    sample = random_sample(np.random.default_rng(0), agent, CONTINUOUS)
    rollout: Rollout = agent.rollout(networks, [tree.map_structure(tf.constant, sample)], [tf.zeros((5, 6))])
    assert {leaf.shape[:2] for leaf in tree.flatten(rollout)} == {(1, 24)}


def rollout_of(agent: Ppo, sample: Any, **changed: Any) -> Rollout:
    """The rollout of a sample whose values are 0, for a network without memory."""
    networks = PpoNetworks(FixedNetwork(None), DISCRETE, agent.normalize_rewards)
    parts = [tree.map_structure(tf.constant, sample)]
    values = [tf.zeros((agent.unroll_length + 1, agent.batch_size))]
    return make_rollout(networks, parts, values, **{"discount": 0.0, "gae_lambda": 1.0, **changed})


@pytest.mark.parametrize("normalize", [False, True])
def test_advantages_are_standardized_over_valid_transitions_if_that_is_wanted(normalize):
    agent = Ppo(unroll_length=6, batch_size=5, normalize_rewards=False)
    sample = random_sample(np.random.default_rng(0), agent, DISCRETE)
    rollout = rollout_of(agent, sample, normalize_advantages=normalize)
    valid = rollout.valid.numpy().reshape(6, 5)
    assert 0 < valid.sum() < 30
    # Without a discount and with values of 0, the advantage is the reward.
    reward = sample.record.reward[valid]
    expected = (reward - reward.mean()) / reward.std() if normalize else reward
    np.testing.assert_allclose(rollout.advantage.numpy().reshape(6, 5)[valid], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rollout.target.numpy().reshape(6, 5)[valid], reward, rtol=1e-6)


def test_errors_of_the_value_are_divided_by_a_tenth_of_its_targets_deviation():
    agent = Ppo(unroll_length=6, batch_size=5, normalize_rewards=False)
    rng = np.random.default_rng(0)
    sample = random_sample(rng, agent, DISCRETE)
    errors = rng.normal(scale=1e-3, size=(7, 5)).astype(np.float32)
    networks = PpoNetworks(FixedNetwork(None), DISCRETE, False)
    values = np.concatenate([sample.record.reward, np.zeros((7 - len(sample.record.reward), 5), np.float32)]) - errors
    rollout = make_rollout(networks, [tree.map_structure(tf.constant, sample)], [tf.constant(values)], 0.0, 1.0, True)
    valid = rollout.valid.numpy().reshape(6, 5)
    found, error = rollout.advantage.numpy().reshape(6, 5)[valid], errors[:6][valid]
    least = 0.1 * sample.record.reward[:6][valid].std()
    np.testing.assert_allclose(found, (error - error.mean()) / least, atol=1e-4)
    assert found.std() < 0.1


def test_rewards_are_divided_by_the_deviation_of_returns_and_clipped_to_ten_of_them():
    agent = Ppo(unroll_length=6, batch_size=5)
    sample = random_sample(np.random.default_rng(0), agent, DISCRETE, ends=0.0)
    reward = np.where(np.arange(5) == 2, 1000.0, sample.record.reward).astype(np.float32)
    sample = sample._replace(record=sample.record._replace(reward=reward))
    rollout = rollout_of(agent, sample, normalize_advantages=False)
    scaled = reward / sample.discounted_return.std()
    np.testing.assert_allclose(rollout.advantage.numpy().reshape(6, 5), np.clip(scaled, -10, 10), rtol=1e-5)
    assert scaled.max() > 10


def test_the_network_takes_previous_rewards_as_they_are():
    agent = from_values(Ppo, {"unroll_length": 4, "reward_scale": 10.0, "network.core": "lstm", "network.lstm_size": 1})
    sample = random_sample(np.random.default_rng(0), agent, DISCRETE, batch=3)
    record = sample.record._replace(extras=sample.record.extras._replace(previous_reward=1 + sample.record.reward))
    carried = Carried(sample.state, np.zeros(3, record.action.dtype), ())
    sample = sample._replace(record=record, state=carried)
    networks = PpoNetworks(FixedNetwork(None, carried), DISCRETE, False)
    rollout = agent.rollout(networks, [tree.map_structure(tf.constant, sample)], [tf.zeros((5, 3))])
    expected = np.concatenate([1 + record.reward[:1], record.reward[:-1]])
    np.testing.assert_array_equal(rollout.inputs.previous_reward, expected)


def test_the_parts_of_a_batch_are_put_beside_each_other():
    agent = from_values(Ppo, {"unroll_length": 4, "network.core": "lstm", "network.lstm_size": 1})
    rng = np.random.default_rng(0)
    samples = [tree.map_structure(tf.constant, random_sample(rng, agent, DISCRETE, batch=batch)) for batch in (2, 3)]
    networks = PpoNetworks(FixedNetwork(None, samples[0].state), DISCRETE, False)
    rollout = agent.rollout(networks, samples, [tf.fill((5, 2), 1.0), tf.fill((5, 3), 2.0)])
    np.testing.assert_array_equal(rollout.value, [[1, 1, 2, 2, 2]] * 4)
    action = np.concatenate([sample.record.action for sample in samples], axis=1)
    np.testing.assert_array_equal(rollout.action, action)
    cell = np.concatenate([sample.state.cell for sample in samples])
    np.testing.assert_array_equal(rollout.state.cell, cell)


def test_a_single_minibatch_is_the_whole_rollout():
    agent = Ppo(unroll_length=4, batch_size=6, normalize_rewards=False)
    sample = random_sample(np.random.default_rng(0), agent, DISCRETE)
    rollout = rollout_of(agent, sample, normalize_advantages=True)
    assert select_minibatch(rollout, 1, tf.constant(0), tf.constant([1, 2], tf.int64)) is rollout
