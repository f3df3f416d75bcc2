"""The diagonal Gaussian, its head, and actions whose bounds are infinite."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.errors import CallboardError
from callboard.networks.action_bounds import ActionBounds
from callboard.networks.distributions import DiagonalGaussian
from callboard.networks.factory import gaussian_value_network, policy_value_network
from callboard.networks.heads import GaussianValueHead
from callboard.networks.network import Inputs
from callboard.specs import EnvironmentSpec

INFINITE = specs.BoundedArray((3,), np.float32, [-np.inf, 0.0, -2.0], [np.inf, np.inf, 4.0])


def test_density_integrates_to_one_and_gives_the_entropy():
    std, mean = np.array([0.5, 2.0]), np.array([1.0, -3.0])
    grid = np.stack(np.meshgrid(*(m + s * np.linspace(-8, 8, 801) for m, s in zip(mean, std, strict=True))), axis=-1)
    cell = np.prod(std) * 0.02**2
    policy = DiagonalGaussian(tf.constant(mean), tf.constant(np.log(std)))
    log_prob = policy.log_prob(grid).numpy()
    assert (np.exp(log_prob) * cell).sum() == pytest.approx(1, abs=1e-9)
    assert -(np.exp(log_prob) * log_prob * cell).sum() == pytest.approx(policy.entropy().numpy(), abs=1e-8)
    np.testing.assert_allclose(grid.reshape(-1, 2)[log_prob.argmax()], policy.mode(), atol=1e-12)


def test_samples_have_the_mean_and_the_deviation():
    noise = np.random.default_rng(0).normal(size=(200_000, 2))
    policy = DiagonalGaussian(tf.constant([[1.0, -3.0]], tf.float64), tf.constant(np.log([[0.5, 2.0]])))
    samples = policy.sample(noise).numpy()
    np.testing.assert_allclose(samples.mean(0), [1.0, -3.0], atol=0.02)
    np.testing.assert_allclose(samples.std(0), [0.5, 2.0], rtol=0.01)


@pytest.mark.parametrize("from_features", [False, True])
def test_head_begins_at_zero_with_the_given_deviation(from_features):
    head = GaussianValueHead(3, hidden_sizes=(8,), initial_log_std=-0.7, std_from_features=from_features)
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


@pytest.mark.parametrize("from_features", [False, True])
def test_every_weight_of_the_head_learns(from_features):
    network = gaussian_value_network(
        EnvironmentSpec(specs.Array((4,), np.float32), INFINITE),
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


def test_infinite_bounds_are_not_scaled_but_kept():
    bounds = ActionBounds(INFINITE, unbounded=True)
    unit = np.array([[-50.0, -50.0, -50.0], [50.0, 50.0, 50.0], [0.25, 0.25, 0.25]], np.float32)
    action = bounds.to_environment(unit)
    np.testing.assert_allclose(action, [[-50, 0, -2], [50, 50, 4], [0.25, 0.25, 1.75]])
    for row in action.numpy():
        INFINITE.validate(row)
    np.testing.assert_allclose(bounds.from_environment(action[2]), unit[2], rtol=1e-6)
    with pytest.raises(CallboardError, match="finite bounds"):
        ActionBounds(INFINITE)
