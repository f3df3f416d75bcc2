"""CQL: SAC's losses and its penalty, against loops over numbers."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from small_worlds import layout_of
from update_on_replicas import BATCH, CONTINUOUS, DISCRETE, OBSERVATION, random_sample

from callboard.agents.offline.cql import CQL
from callboard.agents.policies.acting import trace_layout
from callboard.errors import CallboardError
from callboard.networks.network import Inputs
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

SEED = tf.constant([1, 2], tf.int64)


def made(spec: EnvironmentSpec) -> Any:
    agent = from_values(CQL, {"batch_size": BATCH, "network.hidden_sizes": (4,), "action_samples": 3})
    layout = layout_of(spec, envs_per_actor=BATCH)
    networks = agent.make_networks(layout)
    sample = random_sample(trace_layout(agent, layout, networks), 1, seed=4)
    normalizer = networks.actor_critic.normalizer
    assert normalizer is not None
    normalizer.update(sample.record.observation[0], leading=1)
    return agent, networks.actor_critic, sample


@pytest.mark.slow("daily")
@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_the_critics_loss_is_that_of_sac_with_the_penalty(spec):
    agent, networks, sample = made(spec)
    terms = agent.terms(networks, sample, SEED)
    without = dataclasses.replace(agent, conservative_weight=0.0).terms(networks, sample, SEED)
    record = sample.record
    before, after, action = record.observation[0], record.observation[1], record.action[0]
    if spec is CONTINUOUS:
        actions, density = agent._sampled(networks, before, after, SEED, BATCH)
        actions, density = actions.numpy(), density.numpy()
        np.testing.assert_allclose(density[:, :3], -2 * math.log(2), rtol=1e-6)
        for start, observation in ((3, before), (6, after)):
            policy, _ = networks.policy.step(Inputs(observation), (), record.first[0])
            for b, i in np.ndindex(BATCH, 3):
                unit = actions[b, start + i].astype(np.float64)
                gaussian, mean, std = np.arctanh(unit), policy.mean[b].numpy(), np.exp(policy.log_std[b].numpy())
                log_prob = -(((gaussian - mean) / std) ** 2) / 2 - np.log(std * math.sqrt(2 * math.pi))
                expected = np.sum(log_prob - np.log(1 - unit**2))
                np.testing.assert_allclose(density[b, start + i], expected, rtol=1e-3, atol=1e-3)
    seen = 0
    for b in range(BATCH):
        gap = 0.0
        if not (record.last[0, b] or (record.first[1, b] and record.discount[0, b])):
            seen += 1
            for critic in range(2):
                if spec is DISCRETE:
                    q = networks.critic(before[b : b + 1])[critic].numpy()[0]
                    gap += math.log(sum(math.exp(one) for one in q)) - q[action[b]]
                    continue
                unit = 2 * (action[b] - np.array([-1.0, 0.0])) / [2.0, 5.0] - 1
                total = 0.0
                for i in range(9):
                    q = networks.critic(before[b : b + 1], actions[b, i][None])[critic].numpy()[0]
                    total += math.exp(q - density[b, i]) / 9
                gap += math.log(total) - networks.critic(before[b : b + 1], unit[None])[critic].numpy()[0]
        np.testing.assert_allclose(terms.gap[b], gap / 2, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(terms.critic_loss[b] - without.critic_loss[b], 5 * gap, rtol=1e-4, atol=1e-4)
    assert 0 < seen < BATCH
    np.testing.assert_array_equal(terms.actor_loss, without.actor_loss)
    assert "conservative_gap" in agent.loss(networks, sample, SEED).metrics


@pytest.mark.slow("daily")
def test_the_penalty_does_not_train_the_policy():
    agent, networks, sample = made(CONTINUOUS)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(agent.terms(networks, sample, SEED).critic_loss)
    assert set(tape.gradient(loss, networks.policy.trainable_variables)) == {None}


def test_actions_of_several_parts_are_refused():
    action = (dm_specs.DiscreteArray(3), dm_specs.DiscreteArray(3))
    with pytest.raises(CallboardError, match="cql takes one discrete action or one array of floats.*use iql"):
        CQL().check(layout_of(EnvironmentSpec(OBSERVATION, action)))
