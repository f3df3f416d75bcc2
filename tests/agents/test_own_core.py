"""PPO with a recurrent core of the user's own, which its settings know nothing of."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs

from callboard.agents.policies.acting import trace_layout
from callboard.agents.policies.ppo_policy import PpoNetworks
from callboard.agents.ppo import Ppo
from callboard.agents.ppo_rollout import observation_values
from callboard.data import Layout, Sample
from callboard.errors import CallboardError
from callboard.networks.factory import make_torso
from callboard.networks.heads import PolicyValueHead
from callboard.networks.network import Network
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(3))
BATCH, STEPS = 4, 5


class SumCore(tf.Module):
    """Carries the sum of the features since the episode began."""

    def build(self, feature_size):
        self.state_spec = {"sum": tf.TensorSpec((feature_size,), tf.float32)}

    def initial_state(self, batch_size):
        return {"sum": tf.zeros((batch_size, *self.state_spec["sum"].shape))}

    def step(self, features, state, first):
        total = tf.where(first[:, tf.newaxis], 0.0, state["sum"]) + features
        return total, {"sum": total}

    def unroll(self, features, state, first):
        totals = []
        for step, is_first in zip(tf.unstack(features), tf.unstack(first), strict=True):
            total, state = self.step(step, state, is_first)
            totals.append(total)
        return tf.stack(totals), state


def own_network(spec):
    return Network(spec, make_torso(spec, "mlp", (4,)), SumCore(), PolicyValueHead(spec.action.num_values))


class OwnPpo(Ppo):
    def make_networks(self, layout):
        return PpoNetworks(own_network(layout.spec), layout.spec, self.normalize_rewards)


def layout_of(agent):
    layout = Layout(SPEC, envs_per_actor=BATCH, actors=1, shards=1, replicas=1, seed=1, max_steps=1000)
    agent.check(layout)
    return layout


def iterate(agent, layout):
    """Makes an iteration of random data; returns the rollout and the metrics."""
    networks = agent.make_networks(layout)
    traced = trace_layout(agent, layout, networks)

    def random(spec, *leading):
        values = np.random.default_rng(0).integers(2, size=(*leading, *spec.shape))
        return tf.constant(values, spec.dtype)

    record: Any = tree.map_structure(lambda spec: random(spec, STEPS, BATCH), traced.record)
    longer = {name: random(getattr(traced.record, name), STEPS + 1, BATCH) for name in ("observation", "first", "last")}
    record = record._replace(**longer, version=tf.zeros_like(record.version))
    state = tree.map_structure(lambda spec: random(spec, BATCH), traced.state)
    sample = Sample(record, state, discounted_return=random(traced.record.reward, STEPS, BATCH))
    rollout = agent.rollout(networks, [sample], [observation_values(networks, sample)])
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    metrics = learner.step(iter([sample])).metrics
    assert all(np.isfinite(float(value)) for value in metrics.values())
    return rollout


@pytest.mark.usefixtures("eagerly")
def test_the_network_says_whether_there_is_a_memory():
    agent = OwnPpo(unroll_length=STEPS, batch_size=BATCH, minibatches=2, epochs=1)
    assert agent.network.core == "none"
    rollout = iterate(agent, layout_of(agent))
    # Whole sequences, each with its state, and no single transitions.
    assert rollout.valid.shape == (STEPS, BATCH) and rollout.state["sum"].shape == (BATCH, 4)


@pytest.mark.slow
def test_separate_networks_with_a_gru_each():
    changed = {"unroll_length": STEPS, "batch_size": BATCH, "minibatches": 2, "epochs": 1}
    network = {"network.core": "gru", "network.shared": False, "network.lstm_size": 3, "network.layer_norm": True}
    agent = from_values(Ppo, {**changed, **network})
    rollout = iterate(agent, layout_of(agent))
    assert rollout.valid.shape == (STEPS, BATCH)
    assert [state.shape for state in rollout.state] == [(BATCH, 3)] * 2


def test_sequences_that_cannot_be_divided_are_refused():
    agent = OwnPpo(unroll_length=STEPS, batch_size=BATCH, minibatches=5)
    layout = layout_of(agent)
    with pytest.raises(
        CallboardError, match="the 4 sequences of a learner device cannot be divided into 5 minibatches"
    ):
        agent.make_learner(agent.make_networks(layout), tf.distribute.get_strategy(), layout)


def test_networks_of_another_type_are_refused():
    class WrongPpo(Ppo):
        def make_networks(self, layout):
            return own_network(layout.spec)

    agent = dataclasses.replace(WrongPpo(), batch_size=BATCH, minibatches=2)
    layout = layout_of(agent)
    with pytest.raises(CallboardError, match=r"WrongPpo.make_networks gives Network: let it give PpoNetworks\("):
        agent.make_policy(agent.make_networks(layout), "train")
