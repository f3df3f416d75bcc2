"""IQL: its loss against a loop over numbers, and actions of every kind."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from small_worlds import layout_of
from update_on_replicas import BATCH, CONTINUOUS, DISCRETE, OBSERVATION, random_sample

from callboard.agents.learning.gradient_step import divided
from callboard.agents.offline.iql import IQL
from callboard.agents.policies.acting import trace_layout
from callboard.data import Timestep
from callboard.networks.network import Inputs
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

SMALL = {"batch_size": BATCH, "network.hidden_sizes": (4,), "inverse_temperature": 2.0, "largest_weight": 1.5}


def made(spec: EnvironmentSpec, **settings: Any) -> Any:
    agent = from_values(IQL, {**SMALL, **settings})
    layout = layout_of(spec, envs_per_actor=BATCH)
    networks = agent.make_networks(layout)
    return agent, networks, random_sample(trace_layout(agent, layout, networks), 1, seed=4)


@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_the_loss_is_that_of_the_paper(spec):
    agent, networks, sample = made(spec, reward_scale=2.0, expectile=0.8)
    for number, variable in enumerate(networks.variables):
        if variable.trainable:
            noise = np.random.default_rng(number).normal(size=variable.shape)
            variable.assign(variable + 0.5 * noise.astype(np.float32))
    agent.loss(networks, sample)  # The first batch normalizes observations.
    loss, metrics, _ = agent.loss(networks, sample)
    record, network = sample.record, networks.network
    before, after, action = record.observation[0], record.observation[1], record.action[0]
    outputs, _ = network.step(Inputs(before), (), record.first[0])
    value = outputs.value.numpy()
    next_value = network.value.step(Inputs(after), (), record.first[1])[0].numpy()
    fixed, learned = (
        np.array(networks.values(critic, before, action, tf.float32))
        for critic in (networks.target_critic, networks.critic)
    )
    assert np.abs(fixed - learned).max() > 0.1
    expected = {"policy_loss": 0.0, "value_loss": 0.0, "critic_loss": 0.0}
    weights = []
    for b in range(BATCH):
        if record.last[0, b] or (record.first[1, b] and record.discount[0, b]):
            continue
        q = min(fixed[:, b])
        weights.append(min(np.exp(2.0 * (q - value[b])), 1.5))
        if spec is DISCRETE:
            logits = outputs.logits[b].numpy()
            log_prob = logits[action[b]] - np.log(np.exp(logits).sum())
        else:
            unit = 2 * (action[b] - [-1.0, 0.0]) / [2.0, 5.0] - 1
            std = np.exp(np.maximum(outputs.log_std[b], -5.0))
            log_prob = np.sum(-(((unit - outputs.mean[b]) / std) ** 2) / 2 - np.log(std * np.sqrt(2 * np.pi)))
        expected["policy_loss"] -= weights[-1] * log_prob
        expected["value_loss"] += (0.8 if q >= value[b] else 0.2) * (q - value[b]) ** 2
        target = 2 * record.reward[0, b] + 0.99 * record.discount[0, b] * next_value[b]
        expected["critic_loss"] += ((learned[0, b] - target) ** 2 + (learned[1, b] - target) ** 2) / 2
    assert 0 < len(weights) < BATCH and min(weights) < 1.5
    for name, total in expected.items():
        np.testing.assert_allclose(divided(metrics)[name], total / len(weights), rtol=1e-4)
    np.testing.assert_allclose(loss, sum(expected.values()) / BATCH, rtol=1e-4)


def test_each_loss_trains_variables_of_its_own():
    agent, networks, sample = made(DISCRETE)
    with tf.GradientTape(persistent=True) as tape:
        metrics = divided(agent.loss(networks, sample).metrics)
    critic = networks.critic.trainable_variables
    groups = {
        "policy_loss": networks.network.policy.trainable_variables,
        "value_loss": networks.network.value.trainable_variables,
        "critic_loss": critic,
    }
    ids = [id(variable) for group in groups.values() for variable in group]
    assert sorted(ids) == sorted(id(variable) for variable in networks.trainable_variables)
    for name in groups:
        for other, variables in groups.items():
            moved = [one is not None for one in tape.gradient(metrics[name], variables)]
            assert any(moved) == (name == other), (name, other)


@pytest.mark.slow
@pytest.mark.parametrize("autoregressive", [False, True])
def test_the_better_of_recorded_actions_of_several_parts_is_learned(autoregressive):
    action = {"move": dm_specs.DiscreteArray(3), "push": dm_specs.BoundedArray((1,), np.float32, -2.0, 2.0)}
    spec = EnvironmentSpec(OBSERVATION, action)
    agent = from_values(
        IQL, {"network.hidden_sizes": (32,), "network.autoregressive": autoregressive, "optimizer.learning_rate": 0.01}
    )
    layout = layout_of(spec, envs_per_actor=256)
    networks = agent.make_networks(layout)
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    rng = np.random.default_rng(0)
    move, push = rng.integers(3, size=256).astype(np.int32), rng.uniform(-2, 2, (256, 1)).astype(np.float32)
    # The reward is largest for the move 2 and the push 1.
    reward = (3.0 * (move == 2) - 2 * np.abs(push[:, 0] - 1)).astype(np.float32)
    traced = trace_layout(agent, layout, networks)
    blank = tree.map_structure(lambda leaf: np.zeros((1, 256, *leaf.shape), leaf.dtype.as_numpy_dtype), traced.record)
    ends = np.array([[False] * 256, [True] * 256])
    record = blank._replace(
        observation=np.zeros((2, 256, 3), np.float32),
        first=ends,
        last=np.zeros((2, 256), bool),
        action={"move": move[None], "push": push[None]},
        reward=reward[None],
        discount=np.zeros((1, 256), np.float32),
    )
    batches = iter([tree.map_structure(tf.constant, random_like(record))] * 400)
    for _ in range(400):
        learner.step(batches)
    policy = agent.make_policy(networks, "evaluate")
    ones = np.ones(1, np.float32)
    timestep = Timestep(np.zeros((1, 3), np.float32), ones, ones, ones > 0, ones < 0)
    best, _, _ = policy(timestep, policy.initial_state(1), tf.range(1), tf.constant([1, 1]))
    assert int(best["move"][0]) == 2 and abs(float(best["push"][0, 0]) - 1) < 0.5


def random_like(record: Any) -> Any:
    from callboard.data import Sample

    return Sample(record, ())
