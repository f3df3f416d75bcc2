"""PopArt against a loop over the paper's algorithm in NumPy, and what it must not change: the values."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.networks.heads.popart import PopArtValueHead
from callboard.networks.torsos.dense import Layers

RATE = 0.1


def loop(features, batches, kernel, bias, learning_rate):
    """Algorithm 1 of van Hasselt et al. 2016 for a linear layer: the kernel, bias, mean and scale after all batches."""
    mean, square, weight = 0.0, 1.0, 0.0
    for targets in batches:
        scale = np.sqrt(square - mean**2)
        weight = (1 - RATE) * weight + RATE
        new_mean = mean + RATE / weight * (targets.mean() - mean)
        square = square + RATE / weight * ((targets**2).mean() - square)
        new_scale = np.sqrt(square - new_mean**2)
        kernel = kernel * scale / new_scale
        bias = (scale * bias + mean - new_mean) / new_scale
        mean, scale = new_mean, new_scale
        errors = features @ kernel + bias - (targets - mean) / scale
        kernel = kernel - learning_rate * features.T @ errors / len(targets)
        bias = bias - learning_rate * errors.mean()
    return kernel, bias, mean, scale


@pytest.mark.slow("daily")
@pytest.mark.parametrize("compiled", [False, True])
def test_steps_are_those_of_the_papers_algorithm(compiled):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(12, 5)).astype(np.float32)
    batches = [(1000 * rng.normal(size=12) + 5000 * index).astype(np.float32) for index in range(4)]
    head = PopArtValueHead(rate=RATE)
    head(tf.constant(features))
    kernel, bias = (variable.numpy() for variable in head.trainable_variables)
    assert {variable.name.split("/")[-1] for variable in head.trainable_variables} == {"kernel:0", "bias:0"}

    def step(targets):
        with tf.GradientTape() as tape:
            values = head(tf.constant(features))
            head.update(targets[:, tf.newaxis], tf.ones((12, 1), tf.bool), ())
            loss = tf.reduce_mean(tf.square((values - targets) / head.scale(())) / 2)
        for variable, gradient in zip(
            head.trainable_variables, tape.gradient(loss, head.trainable_variables), strict=True
        ):
            variable.assign_sub(0.1 * gradient)

    if compiled:
        step = tf.function(step, autograph=False)
    for targets in batches:
        step(tf.constant(targets))
    by_shape = {variable.shape.rank: variable.numpy() for variable in head.trainable_variables}
    first, second = (kernel, bias) if kernel.ndim == 2 else (bias, kernel)
    expected = loop(features.astype(np.float64), batches, first[:, 0].astype(np.float64), float(second[0]), 0.1)
    np.testing.assert_allclose(by_shape[2][:, 0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_shape[1][0], expected[1], rtol=1e-4, atol=1e-5)
    mean, scale = head.statistics
    np.testing.assert_allclose([mean[0], scale[0]], expected[2:], rtol=1e-6)


@pytest.mark.parametrize("hidden_sizes", [(), (7,)])
def test_new_statistics_change_no_value(hidden_sizes):
    rng = np.random.default_rng(1)
    head = PopArtValueHead(Layers(hidden_sizes), rate=RATE)
    features = tf.constant(rng.normal(size=(9, 4)), tf.float32)
    before = head(features)
    for scale in (1.0, 1e3, 1e-2):
        head.update(tf.constant(scale * rng.normal(size=(6, 3)), tf.float32), tf.ones((6, 3), tf.bool), ())
        np.testing.assert_allclose(head(features), before, rtol=1e-4, atol=1e-4 * scale)


def test_the_gradient_in_the_features_is_that_of_the_values():
    head = PopArtValueHead(rate=RATE)
    features = tf.constant(np.random.default_rng(2).normal(size=(3, 4)), tf.float32)
    head(features)
    head.update(tf.constant([[10.0, 30.0]]), tf.ones((1, 2), tf.bool), ())
    with tf.GradientTape() as tape:
        tape.watch(features)
        total = tf.reduce_sum(head(features))
    step = tf.one_hot(1, 4) * 1e-1
    np.testing.assert_allclose(
        tape.gradient(total, features)[:, 1], (head(features + step) - head(features)) / 1e-1, rtol=1e-3
    )


def test_tasks_have_outputs_and_statistics_of_their_own():
    head = PopArtValueHead(rate=RATE, task="task", tasks=3)
    features, task = tf.ones((2, 4)), tf.constant([0, 2])
    before = head(features, task)
    observation = {"task": tf.constant([[0, 2], [0, 2]])}
    targets, valid = tf.constant([[1.0, 100.0], [3.0, 300.0]]), tf.ones((2, 2), tf.bool)
    head.update(targets, valid, observation)
    mean, scale = head.statistics
    np.testing.assert_allclose(mean, [2.0, 0.0, 200.0])
    np.testing.assert_allclose(scale, [1.0, 1.0, 100.0])
    np.testing.assert_allclose(head.scale(observation), [[1.0, 100.0]] * 2)
    np.testing.assert_allclose(head(features, task), before, rtol=1e-4, atol=1e-4)


def test_invalid_targets_are_left_out_and_a_batch_of_them_changes_nothing():
    head = PopArtValueHead(rate=RATE)
    head(tf.ones((1, 2)))
    targets = tf.constant([[4.0, np.inf], [np.nan, 6.0]])
    head.update(targets, tf.constant([[True, False], [False, True]]), ())
    before = [part.numpy() for part in head.statistics]
    np.testing.assert_allclose(before, [[5.0], [1.0]])
    head.update(targets, tf.zeros((2, 2), tf.bool), ())
    np.testing.assert_array_equal([part.numpy() for part in head.statistics], before)


def test_the_scale_has_bounds():
    head = PopArtValueHead(rate=RATE)
    head(tf.ones((1, 2)))
    head.update(tf.zeros((2, 2)), tf.ones((2, 2), tf.bool), ())
    assert float(head.scale(())) == np.float32(1e-4)
