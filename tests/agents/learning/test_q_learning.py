"""What agents that learn action values share: networks, exploration and the target network."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from small_worlds import ACTIONS, SPEC, layout_of, weights_of

from callboard.agents.learning.gradient_step import LossOutput
from callboard.agents.learning.q_learning import QNetworks, QPolicy, make_q_learner
from callboard.agents.schedules import Schedule
from callboard.agents.settings.apex_settings import ApexSettings
from callboard.agents.settings.optimizer_settings import OptimizerSettings
from callboard.data import Record, Sample
from callboard.networks.factory import q_network

SEED = tf.constant([3, 4])


def make_networks(spec=SPEC, epsilon=0.4, **sizes):
    return QNetworks(functools.partial(q_network, spec, hidden_sizes=(4,)), layout_of(spec, **sizes), epsilon)


def random_values(number):
    return tf.constant(np.random.default_rng(0).normal(size=(number, ACTIONS)), tf.float32)


def test_online_and_target_network_are_alike_and_share_nothing():
    networks = make_networks(envs_per_actor=3, actors=5)
    assert networks.slots == 15
    shapes = [[variable.shape for variable in part.variables] for part in (networks.online, networks.target)]
    assert shapes[0] == shapes[1]
    assert len({id(variable) for variable in networks.variables}) == 2 * len(shapes[0]) + len([networks.epsilon])


def test_each_environment_of_all_actors_explores_at_its_own_rate_in_training():
    networks = make_networks(envs_per_actor=1000, actors=4, epsilon=0.9)
    q, slot = random_values(4000), np.arange(4000)
    policy = QPolicy(networks, ApexSettings(epsilon=0.9, epsilon_alpha=6.0, evaluation_epsilon=1.0), "train")
    explored = policy.choose(q, tf.constant(slot), SEED).numpy() != np.argmax(q, axis=-1)
    rate = 0.9 ** (1 + 6.0 * slot / 3999) * (1 - 1 / ACTIONS)
    for part in np.split(slot, 4):
        deviation = np.sqrt((rate[part] * (1 - rate[part])).sum())
        assert abs(explored[part].sum() - rate[part].sum()) < 4 * deviation


def test_an_evaluation_has_a_rate_of_its_own():
    networks = make_networks()
    q, slot = random_values(2000), tf.range(2000)
    for rate in (0.0, 0.3):
        settings = ApexSettings(epsilon=1.0, epsilon_alpha=0.0, evaluation_epsilon=rate)
        action = QPolicy(networks, settings, "evaluate").choose(q, slot, SEED).numpy()
        explored, expected = np.mean(action != np.argmax(q, axis=-1)), rate * (1 - 1 / ACTIONS)
        assert abs(explored - expected) <= 4 * np.sqrt(expected * (1 - expected) / 2000)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_actions_have_the_dtype_of_the_environment(dtype):
    networks = make_networks(SPEC._replace(action=dm_specs.DiscreteArray(ACTIONS, dtype)))
    for mode in ("train", "evaluate"):
        assert QPolicy(networks, ApexSettings(), mode).choose(random_values(2), tf.range(2), SEED).dtype == dtype


def make_learner(networks, **changed):
    optimizer = OptimizerSettings(learning_rate=0.1, epsilon=1e-8, max_gradient_norm=None)

    def loss(sample):
        return LossOutput(tf.add_n([tf.reduce_sum(weight) for weight in networks.online.trainable_variables]), {})

    arguments = {"steps": 10, "target_update_period": 2, "updates_per_call": 1, "epsilon": 0.4, **changed}
    return make_q_learner(networks, loss, optimizer, strategy=tf.distribute.get_strategy(), **arguments)


def batch(*leading):
    version = tf.zeros((*leading, 1, 1, 2), tf.int32)
    nothing = dict.fromkeys(Record._fields, ())
    return Sample(Record(**{**nothing, "version": version}), ())


@pytest.mark.usefixtures("eagerly")
def test_the_target_network_begins_as_a_copy_and_is_one_again_after_each_period():
    networks = make_networks()
    assert np.abs(weights_of(networks.online) - weights_of(networks.target)).max() > 0
    learner = make_learner(networks)
    weights = weights_of(networks.online)
    np.testing.assert_array_equal(weights_of(networks.target), weights)
    moved = 0.0
    for step in range(1, 5):
        learner.step(iter([batch()]))
        # Each of Adam's steps on a constant gradient is the learning rate, which falls to 0 within 10 steps.
        moved += 0.1 * (1 - (step - 1) / 10)
        np.testing.assert_allclose(weights_of(networks.online), weights - moved, rtol=1e-4, atol=1e-5)
        if step % 2 == 0:
            copied = weights_of(networks.online)
        np.testing.assert_array_equal(weights_of(networks.target), copied if step > 1 else weights)


@pytest.mark.usefixtures("eagerly")
def test_periods_are_of_updates_and_not_of_calls():
    networks = make_networks()
    learner = make_learner(networks, target_update_period=2, updates_per_call=3)
    before = weights_of(networks.online)
    assert learner.step(iter([batch(3)])).steps == 3
    # The target network is a copy of what the second of three updates has left.
    np.testing.assert_allclose(weights_of(networks.target), before - 0.1 * (1 + 0.9), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights_of(networks.online), before - 0.1 * (1 + 0.9 + 0.8), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("eagerly")
def test_actors_explore_at_the_rate_that_the_learner_last_had():
    networks = make_networks(epsilon=Schedule(start=0.75))
    policy = QPolicy(networks, ApexSettings(epsilon_alpha=0.0), "train")
    assert policy.epsilon.numpy() == 0.75 and any(policy.epsilon is variable for variable in policy.variables)
    rate = tf.Variable(0.0)
    make_learner(networks, epsilon=rate).step(iter([batch()]))
    q = random_values(500)
    np.testing.assert_array_equal(policy.choose(q, tf.range(500), SEED), np.argmax(q, axis=-1))
