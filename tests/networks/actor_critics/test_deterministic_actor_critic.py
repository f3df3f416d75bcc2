"""Networks of deterministic policies: their outputs, and what they share."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.actor_critics.deterministic_actor_critic import (
    CategoricalCritic,
    UnitActionHead,
    deterministic_actor_critic,
)
from callboard.networks.network import Inputs
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((4,), np.float32), specs.BoundedArray((2, 3), np.float32, -2.0, 6.0))
OBSERVATION = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


def test_policy_and_critics_and_that_their_targets_begin_equal_and_share_nothing():
    networks = deterministic_actor_critic(SPEC, hidden_sizes=(8,))
    action, _ = networks.policy.step(Inputs(OBSERVATION), (), np.zeros(5, bool))
    target_action, _ = networks.target_policy.step(Inputs(OBSERVATION), (), np.zeros(5, bool))
    assert action.shape == (5, 6) and np.abs(action).max() < 0.2
    np.testing.assert_allclose(target_action, action, rtol=1e-6)
    values, targets = networks.critic(OBSERVATION, action), networks.target_critic(OBSERVATION, action)
    assert values.shape == (2, 5)
    np.testing.assert_allclose(targets, values, rtol=1e-6)
    assert networks.bounds.to_environment(action).shape == (5, 2, 3)
    parts = (networks.policy, networks.target_policy, networks.critic, networks.target_critic)
    groups = [{id(variable) for variable in part.variables} for part in parts]
    assert sum(map(len, groups)) == len(set.union(*groups)) == len(networks.variables)


def test_unit_actions_are_the_tanh_of_an_mlp():
    head = UnitActionHead(2)
    head(tf.zeros((1, 3)))
    kernel, bias = head.trainable_variables
    kernel.assign([[1.0, -2.0], [0.5, 0.0], [0.0, 9.0]])
    bias.assign([0.1, -0.2])
    features = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 5.0]], np.float32)
    np.testing.assert_allclose(head(features), np.tanh([[2.1, -2.2], [0.1, 44.8]]), rtol=1e-6)


def test_a_critic_of_distributions_depends_on_observation_and_action_and_begins_even():
    networks = deterministic_actor_critic(
        SPEC, hidden_sizes=(8,), make_critic=functools.partial(CategoricalCritic, atoms=5)
    )
    action = np.random.default_rng(1).uniform(-1, 1, (5, 6)).astype(np.float32)
    logits = networks.critic(OBSERVATION, action)
    assert logits.shape == (5, 5) and np.abs(logits).max() < 0.2
    np.testing.assert_allclose(networks.target_critic(OBSERVATION, action), logits, rtol=1e-5, atol=1e-7)
    for other in (networks.critic(OBSERVATION, -action), networks.critic(-OBSERVATION, action)):
        assert np.abs(other - logits).max() > 1e-4
    assert len(networks.critic.trainable_variables) == len(networks.critic.variables) == 4


def test_discrete_actions_are_refused():
    with pytest.raises(CallboardError, match="not 3 discrete actions"):
        deterministic_actor_critic(SPEC._replace(action=specs.DiscreteArray(3)))
