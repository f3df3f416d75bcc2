"""Several heads on one torso, of which a part of the observation selects one."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.factory import check_network, policy_value_network, q_network
from callboard.networks.heads.selected_heads import SelectedHeads
from callboard.networks.network import Inputs
from callboard.networks.network_settings import PolicyValueNetworkSettings, PopArtSettings, QNetworkSettings
from callboard.specs import EnvironmentSpec

AGENTS = 3
OBSERVATION = {"observation": specs.Array((4,), np.float32), "agent_index": specs.Array((AGENTS,), np.float32)}
SPEC = EnvironmentSpec(OBSERVATION, specs.DiscreteArray(2))
BOX = SPEC._replace(action=specs.BoundedArray((2,), np.float32, -1, 1))
COMPOSED = SPEC._replace(action={"choice": SPEC.action, "numbers": BOX.action})
CHOICES = SPEC._replace(action={"left": SPEC.action, "right": specs.DiscreteArray(3)})
T, B = 5, 6


SIZES: dict[str, Any] = {"hidden_sizes": (8,), "heads_by": "agent_index"}
NETWORKS = {
    "memory": lambda: policy_value_network(SPEC, head_sizes=(4,), core="gru", lstm_size=5, **SIZES),
    "separate": lambda: policy_value_network(SPEC, head_sizes=(4,), shared=False, **SIZES),
    "gaussian": lambda: policy_value_network(BOX, **SIZES),
    "dueling": lambda: q_network(SPEC, stream_size=4, **SIZES),
    "atoms": lambda: q_network(SPEC, atoms=3, **SIZES),
    "composed": lambda: policy_value_network(COMPOSED, **SIZES),
    "choices": lambda: q_network(CHOICES, **SIZES),
    "fractions": lambda: q_network(SPEC, fractions=3, **SIZES),
}


def inputs_of(agents):
    own = np.random.default_rng(0).normal(size=(T, B, 4)).astype(np.float32)
    return Inputs({"observation": tf.constant(own), "agent_index": tf.one_hot(agents, AGENTS)})


@pytest.mark.parametrize("name", NETWORKS)
def test_each_agents_outputs_are_those_of_its_head_and_train_no_other(name):
    network = NETWORKS[name]()
    first = tf.zeros((T, B), tf.bool)
    agents = np.random.default_rng(1).integers(AGENTS, size=(T, B))
    with tf.GradientTape() as tape:
        outputs, _ = network.unroll(inputs_of(np.ones((T, B), int)), network.initial_state(B), first)
        total = sum(tf.reduce_sum(leaf) for leaf in tree.flatten(outputs))
    parts = [network.policy, network.value] if hasattr(network, "policy") else [network]
    heads = [head for part in parts for head in part.head.heads]
    variables = [head.trainable_variables for head in heads]
    unused = [gradient is None or not np.any(gradient) for gradient in tape.gradient(total, [v[-1] for v in variables])]
    assert unused == [index % AGENTS != 1 for index in range(len(heads))]
    # Each element of a batch of several agents has the outputs of its own.
    if not network.state_spec:
        mixed, _ = network.unroll(inputs_of(agents), (), first)
        for agent in range(AGENTS):
            alone, _ = network.unroll(inputs_of(np.full((T, B), agent)), (), first)
            for leaf, of_agent in zip(tree.flatten(mixed), tree.flatten(alone), strict=True):
                np.testing.assert_allclose(leaf[agents == agent], of_agent[agents == agent], atol=1e-6)
    assert len({id(v) for v in network.trainable_variables}) == len(network.trainable_variables)
    of_heads = {id(v) for one in variables for v in one}
    assert of_heads <= {id(v) for v in network.trainable_variables}
    assert {id(v) for v in network.value_variables} <= {id(v) for v in network.trainable_variables}


def test_the_selection_is_an_index_or_one_hot():
    heads = SelectedHeads([tf.keras.layers.Dense(2) for _ in range(AGENTS)], "agent_index")
    features, index = tf.random.stateless_normal((7, 4), (0, 1)), tf.constant([0, 1, 2, 2, 1, 0, 1])
    found = heads(features, index)
    np.testing.assert_array_equal(found, heads(features, tf.one_hot(index, AGENTS)))
    for row, agent in enumerate(index.numpy()):
        np.testing.assert_allclose(found[row], heads.heads[agent](features)[row], atol=1e-6)


@pytest.mark.parametrize(
    "observation, problem",
    [
        (OBSERVATION["observation"], "the observation is not a dictionary"),
        ({"observation": OBSERVATION["observation"]}, "has the parts 'observation': name the part"),
        ({**OBSERVATION, "agent_index": specs.Array((2, 2), np.float32)}, "'agent_index' is neither"),
    ],
)
def test_an_observation_that_selects_no_head_is_refused(observation, problem):
    settings = QNetworkSettings(hidden_sizes=(8,), activation="relu", stream_size=0, heads_by="agent_index")
    with pytest.raises(CallboardError, match=problem):
        check_network(SPEC._replace(observation=observation), settings)
    check_network(SPEC, settings)


@pytest.mark.parametrize(
    "other, problem",
    [
        ({"popart": PopArtSettings(enabled=True)}, "and heads_by several: leave one of them out"),
        ({"autoregressive": True}, "and heads_by several: leave one of them out"),
        ({"shared": False, "critic_state": "agent_index"}, "set heads_by to another part"),
    ],
)
def test_what_does_not_go_with_several_heads_is_refused(other, problem):
    settings = PolicyValueNetworkSettings(
        hidden_sizes=(8,), activation="relu", lstm_size=4, head_sizes=(), heads_by="agent_index"
    )
    assert not settings.problem
    assert problem in dataclasses.replace(settings, **other).problem
