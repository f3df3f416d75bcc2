"""Networks of a team's members: an unroll equals steps, and what each member's values depend on."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tree
from team_worlds import ACTIONS, MEMBERS, random_observation, team_spec

from callboard.networks.factory import q_network
from callboard.networks.teams.team import Team
from callboard.networks.teams.team_network import TeamInputs, TeamNetwork

T, B = 4, 3


def network_of(core="gru", heads_by=None, **options):
    make = functools.partial(q_network, core=core, hidden_sizes=(5,), lstm_size=4, dueling=True, heads_by=heads_by)
    return TeamNetwork(Team(team_spec()), make, **options)


def random_inputs():
    rng = np.random.default_rng(0)
    inputs = TeamInputs(
        random_observation(rng, (T, B)), rng.integers(2, size=(T, B, MEMBERS)), rng.random((T, B, MEMBERS)) < 0.3
    )
    return tree.map_structure(tf.constant, inputs._replace(previous_action=inputs.previous_action.astype(np.int32)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "core, shared",
    [
        ("gru", False),
        ("none", True),
        *(pytest.param(*kind, marks=pytest.mark.slow) for kind in (("gru", True), ("lstm", True))),
        *(pytest.param(*kind, marks=pytest.mark.slow) for kind in (("lstm", False), ("none", False))),
    ],
)
def test_an_unroll_equals_steps(shared, core):
    network, inputs = network_of(core, shared=shared), random_inputs()
    assert len(network.networks) == (1 if shared else MEMBERS)
    state = network.initial_state(B)
    assert all(leaf.shape == (B, MEMBERS, 4) for leaf in tree.flatten(state))
    q, last = network.unroll(inputs, state, training=True)
    assert q.shape == (T, B, MEMBERS, max(ACTIONS.values()))
    for t in range(T):
        step, state = network.step(tree.map_structure(lambda leaf, t=t: leaf[t], inputs), state)
        np.testing.assert_allclose(step, q[t], atol=1e-5)
    tree.map_structure(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), state, last)
    assert len({id(variable) for variable in network.trainable_variables}) == len(network.variables)
    assert network.regularization_loss() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "shared, previous_actions",
    [
        (True, True),
        (False, False),
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(False, True, marks=pytest.mark.slow),
    ],
)
def test_a_members_values_depend_on_its_own_inputs_alone(shared, previous_actions):
    network, inputs = network_of(shared=shared, previous_actions=previous_actions), random_inputs()
    inputs = inputs._replace(begins=tf.zeros_like(inputs.begins))
    q, _ = network.unroll(inputs, network.initial_state(B))
    observation = {**inputs.observation, "middle": inputs.observation["middle"] + 1, "state": 0}
    changed, _ = network.unroll(inputs._replace(observation=observation), network.initial_state(B))
    assert np.any(changed[:, :, 1] != q[:, :, 1])
    np.testing.assert_array_equal(changed.numpy()[:, :, [0, 2]], q.numpy()[:, :, [0, 2]])
    action = 1 - inputs.previous_action
    changed, _ = network.unroll(inputs._replace(previous_action=action), network.initial_state(B))
    assert np.any(changed != q) == previous_actions


def test_members_that_share_a_network_differ_by_their_index():
    network, inputs = network_of(core="none", previous_actions=False), random_inputs()
    alike = {"observation": tf.ones((T, B, 2)), "action_mask": tf.ones((T, B, 3), tf.int8)}
    observation = {**inputs.observation, "left": alike, "right": alike, "present": tf.ones((T, B, MEMBERS))}
    q, _ = network.unroll(inputs._replace(observation=observation), ())
    assert np.all(np.any(q[:, :, 0] != q[:, :, 2], axis=-1))


def test_members_that_share_torso_and_core_may_have_a_head_each():
    network, inputs = network_of(heads_by="member"), random_inputs()
    heads = network.networks["shared"].head.heads
    with tf.GradientTape() as tape:
        q, _ = network.unroll(inputs, network.initial_state(B))
        of_second = tf.reduce_sum(q[:, :, 1])
    gradients = tape.gradient(of_second, [head.trainable_variables[0] for head in heads])
    assert [np.any(gradient) for gradient in gradients] == [member == 1 for member in range(MEMBERS)]
