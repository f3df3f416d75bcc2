"""Heads: their values by hand, how they begin, and what their weights learn."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.networks.distributions import DiagonalGaussian
from callboard.networks.factory import policy_value_network
from callboard.networks.heads import (
    DistributionalQHead,
    DuelingQHead,
    GaussianValueHead,
    MLPHead,
    PolicyValueHead,
    QHead,
    SquashedGaussianHead,
)
from callboard.networks.network import Inputs
from callboard.networks.torsos.dense import Layers
from callboard.specs import EnvironmentSpec

FEATURES = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)


def stream_by_hand(variables, features):
    """A stream's output from its kernels and biases, in their order."""
    kernels = [variable.numpy() for variable in variables if variable.shape.rank == 2]
    biases = [variable.numpy() for variable in variables if variable.shape.rank == 1]
    for kernel, bias in zip(kernels[:-1], biases[:-1], strict=True):
        features = np.maximum(features @ kernel + bias, 0)
    return features @ kernels[-1] + biases[-1]


def randomize(variables):
    rng = np.random.default_rng(1)
    for variable in variables:
        variable.assign(rng.normal(size=variable.shape))


def list_of(module):
    """A list whose `in` compares identity: variables compare element by element."""

    class ByIdentity(list):
        def __contains__(self, item):
            return any(item is one for one in self)

    return ByIdentity(module.variables)


# Layers.


def test_hidden_layers_begin_orthogonal_and_different():
    head = MLPHead(3, Layers((5, 5)), gain=0.5)
    head(FEATURES)
    first, second, output = (variable.numpy() for variable in head.trainable_variables if variable.shape.rank == 2)
    for kernel in (first, second):
        np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(5), atol=1e-5)
    np.testing.assert_allclose(output.T @ output, 0.25 * np.eye(3), atol=1e-5)
    assert np.abs(first - second).max() > 0.1


@pytest.mark.parametrize("hidden_sizes", [(), (8,), (8, 6)])
def test_an_mlp_has_relus_between_its_layers_and_a_linear_output(hidden_sizes):
    head = MLPHead(3, Layers(hidden_sizes))
    head(FEATURES)
    randomize(head.trainable_variables)
    np.testing.assert_allclose(head(FEATURES), stream_by_hand(head.trainable_variables, FEATURES), rtol=1e-4, atol=1e-4)


# Action values.


@pytest.mark.parametrize("dueling", [False, True])
def test_distributions_of_values_are_dueling_by_each_of_their_numbers(dueling):
    head = DistributionalQHead(4, 3, Layers((8,)), dueling)
    head(FEATURES)
    randomize(head.trainable_variables)
    expected = stream_by_hand(head._advantage.trainable_variables, FEATURES).reshape(7, 4, 3)
    if dueling:
        value = stream_by_hand(head._value.trainable_variables, FEATURES)
        expected = value[:, np.newaxis] + expected - expected.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(head(FEATURES), expected, rtol=1e-4, atol=1e-5)
    assert len(head.trainable_variables) == (8 if dueling else 4)


@pytest.mark.parametrize("sizes", [(), (8,)])
def test_dueling_equals_the_formula(sizes):
    head = DuelingQHead(4, Layers(sizes))
    head(FEATURES)
    randomize(head.trainable_variables)
    value = [variable for variable in head.trainable_variables if variable in list_of(head._value)]
    advantage = [variable for variable in head.trainable_variables if variable in list_of(head._advantage)]
    assert len(value) == len(advantage) == (4 if sizes else 2)
    v, a = stream_by_hand(value, FEATURES), stream_by_hand(advantage, FEATURES)
    assert v.shape == (7, 1) and a.shape == (7, 4)
    q = head(FEATURES)
    for n in range(7):
        for action in range(4):
            np.testing.assert_allclose(q[n, action], v[n, 0] + a[n, action] - sum(a[n]) / 4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(), (8,)])
def test_the_plain_head(sizes):
    head = QHead(4, Layers(sizes))
    head(FEATURES)
    randomize(head.trainable_variables)
    np.testing.assert_allclose(head(FEATURES), stream_by_hand(head.trainable_variables, FEATURES), atol=1e-4)


# Policy and value.


def test_a_policy_over_actions_begins_almost_uniform_with_a_value_beside_it():
    head = PolicyValueHead(4, (8,), "relu")
    outputs = head(FEATURES)
    assert outputs.logits.shape == (7, 4) and outputs.value.shape == (7,)
    assert 0 < np.abs(outputs.logits).max() < 0.1 < np.abs(outputs.value).max()
    # Kernel and bias of two layers of the policy, and of two of the value.
    assert len(head.trainable_variables) == 8


@pytest.mark.parametrize("from_features", [False, True])
def test_head_begins_at_zero_with_the_given_deviation(from_features):
    head = GaussianValueHead(3, Layers((8,), "tanh"), initial_log_std=-0.7, std_from_features=from_features)
    features = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    outputs = head(features)
    assert outputs.mean.shape == outputs.log_std.shape == (50, 3) and outputs.value.shape == (50,)
    np.testing.assert_allclose(outputs.mean, 0, atol=0.05)
    np.testing.assert_allclose(outputs.log_std, -0.7, atol=0.05)
    assert (np.ptp(outputs.log_std, axis=0) > 0).all() == from_features


@pytest.mark.parametrize("sign, bound", [(1, 2.0), (-1, -10.0)])
def test_a_deviation_that_has_reached_its_bound_comes_back(sign, bound):
    head = GaussianValueHead(2, initial_log_std=bound - 0.5 * sign)
    features = np.ones((1, 3), np.float32)
    head(features)
    optimizer = tf.keras.optimizers.SGD(0.4, jit_compile=False)
    found = []
    for direction in (sign, sign, sign, -sign):
        with tf.GradientTape() as tape:
            loss = -direction * tf.reduce_sum(head(features).log_std)
        gradients = tape.gradient(loss, head.trainable_variables, unconnected_gradients="zero")
        optimizer.apply_gradients(zip(gradients, head.trainable_variables, strict=True))
        found.append(head(features).log_std[0].numpy())
    expected = bound - sign * np.array([0.1, 0.0, 0.0, 0.4])
    np.testing.assert_allclose(found, np.stack([expected] * 2, axis=1), rtol=1e-5)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("from_features", [False, True])
def test_every_weight_of_the_head_learns(from_features):
    network = policy_value_network(
        EnvironmentSpec(specs.Array((4,), np.float32), specs.BoundedArray((3,), np.float32, -1, 1)),
        core="lstm",
        lstm_size=5,
        hidden_sizes=(6,),
        head_sizes=(7,),
        std_from_features=from_features,
    )
    observation = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    with tf.GradientTape() as tape:
        outputs, _ = network.unroll(Inputs(observation), network.initial_state(3), np.zeros((2, 3), bool))
        policy = DiagonalGaussian(outputs.mean, outputs.log_std)
        loss = tf.reduce_sum(policy.log_prob(np.ones((2, 3, 3)))) + tf.reduce_sum(outputs.value)
    gradients = tape.gradient(loss, network.trainable_variables)
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)
    # Kernel and bias of: torso; two layers of the policy and two of the value; the LSTM's three; and log_std.
    assert len(gradients) == 2 + 2 * 4 + 3 + (0 if from_features else 1)


def test_layers_of_their_own_keep_policy_and_value_apart():
    network = policy_value_network(
        EnvironmentSpec(specs.Array((4,), np.float32), specs.DiscreteArray(3)), hidden_sizes=(), head_sizes=(8, 8)
    )
    with tf.GradientTape() as tape:
        outputs, _ = network.step(Inputs(np.ones((2, 4), np.float32)), (), np.zeros(2, bool))
        value = tf.reduce_sum(outputs.value)
    gradients = tape.gradient(value, network.trainable_variables)
    assert sum(gradient is None for gradient in gradients) == 6 and len(gradients) == 12


def test_the_deviation_of_a_squashed_policy_is_clipped():
    head = SquashedGaussianHead(2, log_std_bounds=(-5.0, 1.0))
    head(np.ones((1, 1), np.float32))
    for variable in head.trainable_variables:
        variable.assign(tf.fill(variable.shape, 1.0))
    np.testing.assert_array_equal(head(np.array([[100.0], [-100.0]], np.float32)).log_std, [[1, 1], [-5, -5]])
    assert head(np.array([[100.0]], np.float32)).mean[0, 0] == 101
