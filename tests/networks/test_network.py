"""Steps and unrolls, resets, and the variables of networks."""

import contextlib
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.factory import policy_value_network
from callboard.networks.network import Inputs
from callboard.specs import EnvironmentSpec, add_leading

T, B = 7, 5
SPEC = EnvironmentSpec(specs.Array((3,), np.float32), specs.DiscreteArray(4))
rng = np.random.default_rng(0)


@pytest.fixture
def float64():
    with floatx("float64"):
        yield


@contextlib.contextmanager
def floatx(dtype):
    before = tf.keras.backend.floatx()
    tf.keras.backend.set_floatx(dtype)
    yield
    tf.keras.backend.set_floatx(before)


def make(core, previous_inputs=False):
    return policy_value_network(SPEC, core=core, hidden_sizes=(8,), lstm_size=6, previous_inputs=previous_inputs)


def random_inputs(previous_inputs=False):
    observation = rng.normal(size=(T, B, 3)).astype(np.float32)
    if not previous_inputs:
        return Inputs(tf.constant(observation))
    return Inputs(
        tf.constant(observation),
        previous_action=tf.constant(rng.integers(4, size=(T, B))),
        previous_reward=tf.constant(rng.normal(size=(T, B)), tf.float32),
    )


def at(inputs, index):
    return tree.map_structure(lambda part: part[index], inputs)


def random_state(network):
    return tree.map_structure(
        lambda leaf: tf.constant(rng.normal(size=(B, *leaf.shape)), leaf.dtype), network.state_spec
    )


def step_by_step(network, inputs, state, first):
    outputs = []
    for t in range(T):
        output, state = network.step(at(inputs, t), state, first[t])
        outputs.append(output)
    return tree.map_structure(lambda *leaves: tf.stack(leaves), *outputs), state


def assert_close(one, other, **tolerance):
    tree.map_structure(lambda a, b: np.testing.assert_allclose(a, b, **(tolerance or {"atol": 1e-12})), one, other)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "in_graph, previous_inputs, core",
    [
        pytest.param(*kind, marks=() if kind in ((False, False, "none"), (True, True, "lstm")) else pytest.mark.slow)
        for kind in itertools.product((False, True), (False, True), ("none", "lstm"))
    ],
)
def test_unroll_equals_steps(core, previous_inputs, in_graph):
    network = make(core, previous_inputs)
    inputs, state = random_inputs(previous_inputs), random_state(network)
    first = tf.constant(rng.random((T, B)) < 0.3)
    expected = step_by_step(network, inputs, state, first)
    unroll = tf.function(network.unroll) if in_graph else network.unroll
    outputs, final_state = unroll(inputs, state, first)
    assert outputs.logits.shape == (T, B, 4) and outputs.value.shape == (T, B)
    assert outputs.logits.dtype == outputs.value.dtype == tf.float64
    assert_close((outputs, final_state), expected)


@pytest.mark.usefixtures("float64")
def test_gradients_of_an_unroll_equal_those_of_steps():
    network = make("lstm")
    inputs, state, first = random_inputs(), random_state(network), tf.constant(rng.random((T, B)) < 0.3)
    gradients = []
    for run in (network.unroll, lambda *arguments: step_by_step(network, *arguments)):
        with tf.GradientTape() as tape:
            outputs, _ = run(inputs, state, first)
            loss = tf.reduce_sum(outputs.value**2) + tf.reduce_sum(outputs.logits**3)
        gradients.append(tape.gradient(loss, network.trainable_variables))
    assert all(np.abs(gradient).max() > 0 for gradient in gradients[0])
    assert_close(*gradients)


@pytest.mark.slow("daily")
def test_unroll_with_unknown_batch_in_a_graph():
    """The batch size may be unknown when a dataset is traced."""
    network = make("lstm")
    state_spec = add_leading(network.state_spec, None)
    signature = (tf.TensorSpec((T, None, 3)), state_spec, tf.TensorSpec((T, None), tf.bool))
    unroll = tf.function(lambda seen, *rest: network.unroll(Inputs(seen), *rest), input_signature=signature)
    inputs, state, first = random_inputs(), random_state(network), tf.zeros((T, B), tf.bool)
    assert_close(unroll(inputs.observation, state, first), network.unroll(inputs, state, first), atol=1e-5)


@pytest.mark.usefixtures("float64")
def test_state_is_reset_before_the_first_observation():
    """Outputs do not depend on timesteps before the episode, but do depend on earlier ones of the episode."""
    network = make("lstm", previous_inputs=True)
    inputs, first = random_inputs(previous_inputs=True), np.zeros((T, B), bool)
    first[3] = True
    outputs, state = network.unroll(inputs, random_state(network), first)
    elsewhere = tree.map_structure(lambda part: tf.concat([part[:3] + 1, part[3:]], axis=0), inputs)
    # The previous action and reward at the first observation are of the episode before.
    elsewhere = elsewhere._replace(
        previous_reward=tf.concat([elsewhere.previous_reward[:4] + 1, inputs.previous_reward[4:]], 0)
    )
    others, other_state = network.unroll(elsewhere, random_state(network), first)
    assert_close((outputs.value[3:], state), (others.value[3:], other_state))
    assert np.abs(outputs.value[:3] - others.value[:3]).max() > 1e-4

    fresh, fresh_state = network.unroll(Inputs(*(part[3:] for part in inputs)), network.initial_state(B), first[3:])
    assert_close((outputs.value[3:], state), (fresh.value, fresh_state))
    # The reset is of that timestep only: memory continues afterwards.
    forgetful, _ = network.unroll(inputs, network.initial_state(B), first | (np.arange(T) == 5)[:, np.newaxis])
    assert np.abs(outputs.value[5:] - forgetful.value[5:]).max() > 1e-4


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("core", ["none", "lstm"])
def test_environments_do_not_touch_each_other(core):
    network = make(core)
    inputs, state, first = random_inputs(), random_state(network), np.zeros((T, B), bool)
    outputs, final_state = network.unroll(inputs, state, first)
    mask = (np.arange(B) == 2)[:, np.newaxis]
    changed, changed_state = network.unroll(
        Inputs(inputs.observation + mask.astype(np.float32)),
        tree.map_structure(lambda leaf: leaf + mask, state),
        first | mask[:, 0],
    )
    same = np.arange(B) != 2
    for one, other in zip(tree.flatten((outputs, final_state)), tree.flatten((changed, changed_state)), strict=True):
        axis = 1 if one.shape[0] == T else 0
        np.testing.assert_allclose(np.compress(same, one, axis), np.compress(same, other, axis), atol=1e-12)
        assert np.abs(np.compress(~same, one, axis) - np.compress(~same, other, axis)).max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "core, strategy",
    [
        ("lstm", None),
        ("none", tf.distribute.OneDeviceStrategy("/cpu:0")),
        ("lstm", tf.distribute.MirroredStrategy(["/cpu:0"])),
        pytest.param("none", None, marks=pytest.mark.slow),
        pytest.param("lstm", tf.distribute.OneDeviceStrategy("/cpu:0"), marks=pytest.mark.slow),
        pytest.param("none", tf.distribute.MirroredStrategy(["/cpu:0"]), marks=pytest.mark.slow),
    ],
)
def test_all_variables_exist_after_the_constructor(core, strategy):
    with strategy.scope() if strategy else contextlib.nullcontext():
        network = make(core, previous_inputs=True)
    before = [id(variable) for variable in network.variables]
    trainable = [id(variable) for variable in network.trainable_variables]
    assert len(trainable) == len(set(trainable)) == (9 if core == "lstm" else 6) and set(trainable) == set(before)
    inputs, first = random_inputs(previous_inputs=True), tf.zeros((T, B), tf.bool)

    @tf.function
    def run():
        network.step(at(inputs, 0), network.initial_state(B), first[0])
        return network.unroll(inputs, network.initial_state(B), first)

    strategy.run(run) if strategy else run()
    assert [id(variable) for variable in network.variables] == before
    assert [id(variable) for variable in network.trainable_variables] == trainable


@pytest.mark.slow("daily")
def test_weights_follow_the_seed():
    weights = []
    for seed in (1, 1, 2):
        tf.keras.utils.set_random_seed(seed)
        weights.append([variable.numpy() for variable in make("lstm").trainable_variables])
    assert_close(weights[0], weights[1])
    assert np.abs(weights[0][0] - weights[2][0]).max() > 1e-3


def test_a_frozen_layer_is_not_trained():
    torso = tf.keras.Sequential([tf.keras.layers.Dense(7, trainable=False), tf.keras.layers.Dense(6)])
    network = policy_value_network(SPEC, torso=torso)
    assert len(network.trainable_variables) == 6 and len(network.variables) == 8


def test_a_policy_begins_almost_uniform():
    outputs, _ = make("none").unroll(random_inputs(), (), tf.zeros((T, B), tf.bool))
    assert np.abs(outputs.logits).max() < 0.2


def test_missing_previous_inputs_are_named():
    with pytest.raises(ValueError, match="previous action and reward"):
        make("none", previous_inputs=True).step(at(random_inputs(), 0), (), tf.zeros((B,), tf.bool))


def test_a_torso_must_give_vectors():
    with pytest.raises(CallboardError, match="features"):
        policy_value_network(SPEC, torso=tf.keras.layers.Reshape((3, 1)))
