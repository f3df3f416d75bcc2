"""Frozen parts of a network: for every agent, its learner trains the other parts alone."""

import numpy as np
import pytest
import tensorflow as tf
from agent_cases import SMALL_UPDATES
from slow_cases import slow_but
from update_on_replicas import BATCH, distribute, made, random_sample

from callboard.agents.policies.acting import trace_layout
from callboard.agents.variables.frozen_weights import FrozenWeights, is_frozen, trained
from callboard.agents.variables.weight_names import matching, named_weights
from callboard.data import Layout
from callboard.errors import CallboardError

FROZEN = {"sac": "policy", "td3": "policy", "d4pg": "policy", "ppo-gaussian": "core"}
"""Parts to freeze that have weights; of the other agents the torso."""


@pytest.fixture
def eagerly():
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def sample_of(step, layout, transitions):
    """Data of the weights of a step: PPO drops older data."""
    sample = random_sample(layout, transitions, step)
    version = np.zeros_like(sample.record.version)
    version[..., 1] = step
    return sample._replace(record=sample.record._replace(version=version))


def values(networks):
    return {name: weight.numpy() for name, weight in named_weights(networks).items()}


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", slow_but(SMALL_UPDATES, "impala", "apex", "td3"))
def test_every_agent_s_learner_leaves_frozen_parts_as_they_are(name, eagerly):
    agent, spec, transitions = made(name)
    strategy = tf.distribute.get_strategy()
    layout = Layout(spec, BATCH, actors=1, shards=1, replicas=1, seed=1, max_steps=100_000)
    networks = agent.make_networks(layout)
    pattern = FROZEN.get(name, "torso")
    frozen = FrozenWeights(networks, [pattern])
    learner = agent.make_learner(networks, strategy, layout)
    policy = agent.make_policy(networks, "train")
    frozen.remember(policy.variables)
    layout = trace_layout(agent, layout, networks)
    before = values(networks)
    calls = [[sample_of(step, layout, transitions)] for step in range(2)]
    iterator = distribute(strategy, calls)
    for _ in calls:
        learner.step(iterator)
        frozen.keep()
    after = values(networks)
    kept = matching(before, [pattern], "freeze")
    assert kept and all(np.array_equal(before[name], after[name]) for name in kept)
    assert any(not np.array_equal(before[name], after[name]) for name in after)


class Network(tf.Module):
    def __init__(self):
        super().__init__()
        self.torso = tf.Variable([1.0], name="torso")
        self.head = tf.Variable([1.0], name="head")
        self.normalizer = tf.Variable([1.0], trainable=False, name="normalizer")


def test_nothing_is_frozen_by_default():
    network = Network()
    frozen = FrozenWeights(network, [])
    frozen.remember(network.variables)
    network.torso.assign([2.0])
    frozen.keep()
    assert not is_frozen(network.torso) and len(trained(network.trainable_variables)) == 2


def test_frozen_statistics_are_reset():
    network = Network()
    frozen = FrozenWeights(network, ["normalizer", "torso"])
    network.normalizer.assign([3.0])  # By a checkpoint.
    frozen.remember(network.variables)
    for _ in range(2):
        network.normalizer.assign([5.0])
        frozen.keep()
        assert network.normalizer.numpy() == [3.0]
    assert [is_frozen(variable) for variable in (network.torso, network.head)] == [True, False]


def test_a_learner_that_trains_frozen_weights_is_refused():
    network = Network()
    frozen = FrozenWeights(network, ["torso"])
    frozen.remember(network.variables)
    network.torso.assign([2.0])
    with pytest.raises(CallboardError, match="learner trains torso, which freeze names"):
        frozen.keep()


def test_something_must_be_left_to_train():
    with pytest.raises(CallboardError, match="freeze leaves no weights to train"):
        FrozenWeights(Network(), ["torso", "head"])
    with pytest.raises(CallboardError, match="did you mean 'torso'"):
        FrozenWeights(Network(), ["tors"])
