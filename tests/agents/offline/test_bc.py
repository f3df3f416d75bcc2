"""Behavioral cloning: its loss against a loop over numbers, and actions of several parts."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from imitated_sequences import sequences
from ppo_samples import DISCRETE, OBSERVATION, layout_of
from small_worlds import FixedNetwork

from callboard.agents.learning.gradient_step import divided
from callboard.agents.offline.bc import BC, BCNetworks
from callboard.networks.heads import GaussianValue, PolicyValue
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

BOUNDED = EnvironmentSpec(OBSERVATION, dm_specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [3.0, 1.0]))


def log_prob_by_hand(agent: BC, outputs: Any, action: Any, t: int, b: int) -> float:
    if isinstance(outputs, PolicyValue):
        return outputs.logits[t, b, action] - np.log(np.exp(outputs.logits[t, b]).sum())
    total = 0.0
    for number, low, high, mean, log_std in zip(
        action, [-1.0, 0.0], [3.0, 1.0], outputs.mean[t, b], outputs.log_std[t, b], strict=True
    ):
        unit = 2 * (number - low) / (high - low) - 1
        std = np.exp(max(log_std, agent.least_log_std))
        total += -(((unit - mean) / std) ** 2) / 2 - np.log(std * np.sqrt(2 * np.pi))
    return total


@pytest.mark.parametrize("spec", [DISCRETE, BOUNDED], ids=["discrete", "continuous"])
def test_the_loss_is_the_mean_negative_log_probability_of_valid_actions(spec):
    agent = BC(batch_size=5, trace_length=4, least_log_std=-0.2)
    rng = np.random.default_rng(3)
    sample, shape = sequences(rng, agent, spec), (5, 5)
    outputs: Any = PolicyValue(rng.normal(size=(*shape, 3)), rng.normal(size=shape))
    if spec is BOUNDED:
        outputs = GaussianValue(rng.normal(size=(*shape, 2)), rng.normal(size=(*shape, 2)), rng.normal(size=shape))
        assert (outputs.log_std < -0.2).any() and (outputs.log_std > -0.2).any()
    networks = BCNetworks(FixedNetwork(tree.map_structure(tf.constant, outputs)), spec)
    loss, metrics, _ = agent.loss(networks, sample)
    record, expected, valid = sample.record, 0.0, 0
    for t, b in np.ndindex(4, 5):
        log_prob = log_prob_by_hand(agent, outputs, record.action[t, b], t, b)
        if not (record.last[t, b] or (record.first[t + 1, b] and record.discount[t, b])):
            expected, valid = expected - log_prob, valid + 1
    np.testing.assert_allclose(loss, expected / 20, rtol=1e-5)
    np.testing.assert_allclose(divided(metrics)["log_prob"], -expected / valid, rtol=1e-5)
    assert 0 < valid < 20 and float(metrics["valid_fraction"]) == pytest.approx(valid / 20)


@pytest.mark.slow
@pytest.mark.parametrize("autoregressive", [False, True])
def test_actions_of_several_parts_are_learned_without_training_the_value(autoregressive):
    action = {"move": dm_specs.DiscreteArray(3), "push": dm_specs.BoundedArray((2,), np.float32, -2.0, 2.0)}
    spec = EnvironmentSpec(OBSERVATION, action)
    agent = from_values(
        BC,
        {
            "batch_size": 6,
            "network.hidden_sizes": (8,),
            "network.autoregressive": autoregressive,
            "optimizer.learning_rate": 0.05,
        },
    )
    layout = layout_of(spec)
    networks = agent.make_networks(layout)
    before = [variable.numpy() for variable in networks.network.value_variables]
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    rng = np.random.default_rng(0)
    sample = sequences(rng, agent, DISCRETE)
    push = rng.uniform(-2, 2, (1, 6, 2)).astype(np.float32)
    sample = sample._replace(record=sample.record._replace(action={"move": sample.record.action, "push": push}))
    batches = iter([tree.map_structure(tf.constant, sample)] * 40)
    losses = [float(learner.step(batches).metrics["loss"]) for _ in range(40)]
    assert losses[-1] < losses[0] - 0.5
    assert before and all(
        np.array_equal(old, new) for old, new in zip(before, networks.network.value_variables, strict=True)
    )
