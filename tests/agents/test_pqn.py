"""PQN: returns and loss against loops over numbers, what its policy records, and what it refuses."""

import numpy as np
import pytest
import tensorflow as tf
import tree
from ppo_samples import CONTINUOUS, DISCRETE, layout_of, random_sample
from small_worlds import FixedNetwork

from callboard.agents.learning.gradient_step import divided
from callboard.agents.policies.acting import trace_layout
from callboard.agents.pqn import Pqn, PqnExtras, PqnRollout
from callboard.errors import CallboardError
from callboard.settings.nested_settings import from_values

SMALL = {
    "normalize_rewards": False,
    "unroll_length": 6,
    "batch_size": 4,
    "minibatches": 3,
    "epochs": 2,
    "discount": 0.9,
    "return_lambda": 0.7,
    "network.hidden_sizes": (5,),
    "network.lstm_size": 3,
}


def agent_of(**settings) -> Pqn:
    return from_values(Pqn, {**SMALL, **settings})


def sample_of(agent, seed):
    sample = random_sample(np.random.default_rng(seed), agent, DISCRETE)
    steps, batch = sample.record.reward.shape
    extras = PqnExtras(np.full((steps, batch), np.nan), np.zeros((steps, batch), np.float32))
    state = tree.map_structure(np.float32, sample.state)
    return tree.map_structure(tf.constant, sample._replace(record=sample.record._replace(extras=extras), state=state))


def returns_by_loops(agent, best, record):
    """G = r + gamma ((1 - lambda) max_a Q(x') + lambda G'), timestep by timestep from the end of each sequence."""
    steps, batch = record.reward.shape
    returns, valid = np.zeros((steps, batch)), np.zeros((steps, batch), bool)
    for b in range(batch):
        later = None
        for t in reversed(range(steps)):
            lost = record.first[t + 1, b] and record.discount[t, b] != 0
            if record.last[t, b] or lost:
                later = None
                continue
            valid[t, b] = True
            bootstrap = best[t + 1, b]
            mixed = bootstrap if later is None else (1 - agent.return_lambda) * bootstrap + agent.return_lambda * later
            later = returns[t, b] = record.reward[t, b] + agent.discount * record.discount[t, b] * mixed
    return returns, valid


@pytest.mark.parametrize("core", ["none", "lstm"])
def test_returns_and_loss_are_those_of_a_loop(core):
    agent = agent_of(**{"network.core": core})
    networks = agent.make_networks(layout_of(DISCRETE))
    sample = sample_of(agent, seed=1)
    best = agent.best_values(networks, sample)
    rollout = agent.rollout(networks, [sample], [best])
    expected, valid = returns_by_loops(agent, best.numpy(), tree.map_structure(np.asarray, sample.record))
    np.testing.assert_array_equal(np.reshape(rollout.valid, valid.shape), valid)
    assert 0 < valid.sum() < valid.size
    np.testing.assert_allclose(np.reshape(rollout.target, valid.shape)[valid], expected[valid], rtol=1e-5, atol=1e-6)

    q, _ = networks.online.unroll(rollout.inputs, rollout.state, rollout.first)
    q, action = q.numpy().reshape(*valid.shape, 3), np.asarray(sample.record.action)
    errors = [expected[t, b] - q[t, b, action[t, b]] for t, b in zip(*valid.nonzero(), strict=True)]
    output = agent_of(minibatches=1, **{"network.core": core}).loss(networks, rollout)
    np.testing.assert_allclose(output.loss, np.square(errors).sum() / 2 / valid.size, rtol=1e-5)
    metrics = divided(output.metrics)
    np.testing.assert_allclose(metrics["td_error"], np.abs(errors).mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["value"], q.max(axis=-1)[valid].mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["valid_fraction"], valid.mean(), rtol=1e-6)


def test_only_legal_actions_are_bootstrapped_from():
    agent = agent_of()
    networks = agent.make_networks(layout_of(DISCRETE))
    sample = sample_of(agent, seed=2)
    steps, batch = sample.record.reward.shape
    mask = np.ones((steps + 1, batch, 3), np.int8)
    mask[..., 2] = 0
    q = np.tile(np.array([1.0, 2.0, 3.0], np.float32), (steps + 1, batch, 1))
    networks.online = FixedNetwork(tf.constant(q))
    masked = sample._replace(record=sample.record._replace(observation={"x": q, "action_mask": mask}))
    np.testing.assert_array_equal(agent.best_values(networks, masked), np.full((steps + 1, batch), 2.0))


def test_gradients_do_not_flow_through_returns():
    agent = agent_of(minibatches=1)
    networks = agent.make_networks(layout_of(DISCRETE))
    sample = sample_of(agent, seed=3)
    with tf.GradientTape() as tape:
        rollout = agent.rollout(networks, [sample], [agent.best_values(networks, sample)])
        target = tf.reduce_sum(rollout.target)
    assert all(gradient is None for gradient in tape.gradient(target, networks.online.trainable_variables))
    assert isinstance(rollout, PqnRollout)


def test_the_policy_records_its_best_value_and_no_target_network_is_made():
    agent = agent_of()
    layout = layout_of(DISCRETE)
    networks = agent.make_networks(layout)
    assert networks.target is networks.online
    record = trace_layout(agent, layout, networks).record
    assert isinstance(record.extras, PqnExtras) and record.extras.value.shape == ()


def test_actions_must_be_discrete():
    agent = agent_of()
    with pytest.raises(CallboardError, match="pqn"):
        agent.check(layout_of(CONTINUOUS))


def test_minibatches_must_divide_the_batch():
    agent = agent_of(minibatches=7)
    with pytest.raises(CallboardError, match="set agent.minibatches to 8|set agent.minibatches to 6"):
        agent.check(layout_of(DISCRETE))
