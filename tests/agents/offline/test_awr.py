"""AWR: its loss against a loop over numbers."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from imitated_sequences import sequences
from ppo_samples import DISCRETE, layout_of
from small_worlds import FixedNetwork

from callboard.agents.learning.gradient_step import divided
from callboard.agents.offline.awr import AWR
from callboard.agents.offline.bc import BCNetworks
from callboard.errors import CallboardError
from callboard.networks.heads import PolicyValue
from callboard.settings.nested_settings import from_values


def test_the_loss_is_weighted_imitation_and_the_error_of_the_values():
    agent = AWR(
        batch_size=5,
        trace_length=4,
        temperature=0.7,
        largest_weight=3.0,
        discount=0.9,
        trace_decay=0.8,
        value_cost=0.25,
        reward_scale=2.0,
        normalize_rewards=False,
    )
    rng = np.random.default_rng(3)
    sample = sequences(rng, agent, DISCRETE)
    sample = sample._replace(record=sample.record._replace(reward=rng.normal(size=(4, 5)).astype(np.float32)))
    logits, values = rng.normal(size=(5, 5, 3)), rng.normal(size=(5, 5))
    outputs: Any = tree.map_structure(tf.constant, PolicyValue(logits, values))
    loss, metrics, _ = agent.loss(BCNetworks(FixedNetwork(outputs), DISCRETE, trains_value=True), sample)

    record, advantage, valid = sample.record, np.zeros((5, 5)), np.zeros((4, 5), bool)
    for b in range(5):
        for t in reversed(range(4)):
            valid[t, b] = not (record.last[t, b] or (record.first[t + 1, b] and record.discount[t, b]))
            if valid[t, b]:
                discount = 0.9 * record.discount[t, b]
                error = 2 * record.reward[t, b] + discount * values[t + 1, b] - values[t, b]
                advantage[t, b] = error + 0.8 * discount * advantage[t + 1, b]
    known = advantage[:4][valid]
    policy_loss = value_loss = 0.0
    weights = []
    for t, b in zip(*np.nonzero(valid), strict=True):
        weights.append(min(np.exp((advantage[t, b] - known.mean()) / known.std() / 0.7), 3.0))
        log_prob = logits[t, b, record.action[t, b]] - np.log(np.exp(logits[t, b]).sum())
        policy_loss -= weights[-1] * log_prob
        value_loss += 0.25 * advantage[t, b] ** 2
    assert 0 < valid.sum() < 20 and min(weights) < 1 < max(weights) == 3.0
    np.testing.assert_allclose(divided(metrics)["policy_loss"], policy_loss / valid.sum(), rtol=1e-5)
    np.testing.assert_allclose(divided(metrics)["value_loss"], value_loss / valid.sum(), rtol=1e-5)
    np.testing.assert_allclose(loss, (policy_loss + value_loss) / 20, rtol=1e-5)


def test_a_shared_head_of_the_user_s_own_needs_a_shared_network():
    with pytest.raises(CallboardError, match="needs shared: true"):
        from_values(AWR, {"network.head": "own:head"})


def test_policy_and_value_are_trained():
    networks = from_values(AWR, {"network.hidden_sizes": (8,)}).make_networks(layout_of(DISCRETE))
    assert networks.network.value_variables
    assert len(networks.trainable_variables) == len(networks.network.trainable_variables)
