"""Deterministic policies: how they explore, and which actions they are refused for."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs

from callboard.agents.policies.deterministic_policy import DeterministicNetworks, DeterministicPolicy, check_bounded
from callboard.data import Timestep
from callboard.errors import CallboardError
from callboard.networks.actor_critics.deterministic_actor_critic import deterministic_actor_critic
from callboard.networks.network_settings import ActorCriticSettings
from callboard.specs import EnvironmentSpec

BATCH = 2000
NETWORK = ActorCriticSettings(hidden_sizes=(), activation="relu")


def spec_of(action: Any) -> EnvironmentSpec:
    return EnvironmentSpec(dm_specs.Array((3,), np.float32), action)


BOX = dm_specs.BoundedArray((2,), np.float32, [-1.0, 10.0], [1.0, 20.0])


@pytest.fixture(scope="module")
def networks():
    made = DeterministicNetworks(deterministic_actor_critic(spec_of(BOX), hidden_sizes=()))
    # The action is tanh(bias) where the observation is 0.
    made.actor_critic.policy.trainable_variables[-1].assign([0.5, -3.0])
    return made


def unit_actions(networks, learning, mode, batch=BATCH, slot=None):
    networks.learning.assign(learning)
    flags = np.zeros(batch, bool)
    zeros = np.zeros(batch, np.float32)
    timestep = Timestep(np.zeros((batch, 3), np.float32), zeros, zeros, flags, flags)
    policy = DeterministicPolicy(networks, 0.2, mode)
    action, extras, state = policy(timestep, (), tf.range(batch) if slot is None else slot, tf.constant([1, 2]))
    assert extras == state == policy.initial_state(batch) == ()
    assert (
        action.dtype == tf.float32 and (action >= BOX.minimum).numpy().all() and (action <= BOX.maximum).numpy().all()
    )
    return (action.numpy() - [0.0, 15.0]) / [1.0, 5.0]


def test_actions_are_even_until_learning_begins_and_the_policys_with_noise_then(networks):
    before, after = (unit_actions(networks, learning, "train") for learning in (False, True))
    np.testing.assert_allclose(np.quantile(before, [0.1, 0.5, 0.9], axis=0).T, [[-0.8, 0.0, 0.8]] * 2, atol=0.08)
    mean, std = after[:, 0].mean(), after[:, 0].std()
    assert mean == pytest.approx(np.tanh(0.5), abs=0.02) and std == pytest.approx(0.2, abs=0.02)
    # Near a bound, half of the actions are at it.
    assert 0.3 < (after[:, 1] < -0.9999).mean() < 0.6


def test_an_evaluation_has_no_noise_and_is_never_by_chance(networks):
    for learning in (False, True):
        expected = np.tile(np.tanh([0.5, -3.0]), (BATCH, 1))
        np.testing.assert_allclose(unit_actions(networks, learning, "evaluate"), expected, atol=1e-6)


def test_an_environment_explores_in_the_same_way_whatever_batch_it_is_in(networks):
    whole = unit_actions(networks, True, "train")
    np.testing.assert_allclose(unit_actions(networks, True, "train", 2, tf.constant([7, 3])), whole[[7, 3]], rtol=1e-5)


def test_actors_fetch_the_policy_and_whether_it_learns_alone(networks):
    fetched = {id(variable) for variable in DeterministicPolicy(networks, 0.1, "train").variables}
    assert fetched == {id(one) for one in (*networks.actor_critic.policy.variables, networks.learning)}


@pytest.mark.parametrize(
    "action, message",
    [
        (dm_specs.DiscreteArray(3), "td3 has a deterministic policy and needs one action .* 3 discrete actions"),
        (dm_specs.BoundedArray((2,), np.int32, 0, 4), "needs one action of floats with bounds"),
        ((BOX, BOX), "needs one action of floats"),
        (dm_specs.BoundedArray((2,), np.float32, -1.0, [1.0, np.inf]), "has bounds that are infinite"),
    ],
)
def test_actions_without_finite_bounds_are_refused_in_one_line(action, message):
    with pytest.raises(CallboardError, match=message) as caught:
        check_bounded("td3", spec_of(action), NETWORK)
    assert "\n" not in str(caught.value)
