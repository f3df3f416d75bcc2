"""Learning by gradient: what the optimizer does, and what becomes of a gradient on its way to it."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.gradient_learner import GradientLearner, make_optimizer

START = (1.0, -2.0)


def apply(optimizer, gradients, start=0.0):
    """The values of one weight after each of some gradients."""
    weight = tf.Variable(start, dtype=tf.float64)
    optimizer.build([weight])
    values = []
    for gradient in gradients:
        optimizer.apply_gradients([(tf.constant(gradient, tf.float64), weight)])
        values.append(weight.numpy())
    return values


def test_the_learning_rate_falls_linearly_to_zero_and_stays_there():
    optimizer = make_optimizer("adam", 0.1, decay_steps=4, decay=0.0, epsilon=1e-12)
    # With equal gradients, a step of Adam is as long as the learning rate.
    values = apply(optimizer, [2.0] * 7)
    np.testing.assert_allclose(-np.diff([0.0, *values]), [0.1, 0.075, 0.05, 0.025, 0.0, 0.0, 0.0], atol=1e-5)


def test_without_decay_the_learning_rate_is_constant():
    values = apply(make_optimizer("adam", 0.1, None, 0.0, 1e-12), [2.0] * 5)
    np.testing.assert_allclose(-np.diff([0.0, *values]), 0.1, rtol=1e-4)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_of_less_than_one_batch_has_a_learning_rate_too(steps):
    values = apply(make_optimizer("adam", 0.1, steps, 0.0, 1e-12), [2.0, 2.0])
    np.testing.assert_allclose(values, [-0.1, -0.1], rtol=1e-4)


def test_rmsprop_by_hand():
    """Hinton's rule as in TensorFlow 1, which IMPALA was tuned with: the mean of squares, to which epsilon is added,
    begins at 1."""
    decay, epsilon = 0.9, 0.5
    square, expected, weight = 1.0, [], 1.0
    for gradient in (2.0, -1.0, 3.0):
        square = decay * square + (1 - decay) * gradient**2
        weight -= 0.1 * gradient / np.sqrt(square + epsilon)
        expected.append(weight)
    found = apply(make_optimizer("rmsprop", 0.1, None, decay, epsilon), [2.0, -1.0, 3.0], start=1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_adam_by_hand():
    epsilon = 0.5
    mean = square = 0.0
    expected, weight = [], 1.0
    for step, gradient in enumerate((2.0, -1.0, 3.0), start=1):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        # As in the paper's more efficient order of computation (Kingma and Ba 2015, section 2): epsilon-hat.
        rate = 0.1 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        weight -= rate * mean / (np.sqrt(square) + epsilon)
        expected.append(weight)
    found = apply(make_optimizer("adam", 0.1, None, 0.0, epsilon), [2.0, -1.0, 3.0], start=1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def learn(strategy, shares, max_gradient_norm):
    """Weights and metrics after one step of length 1 on `sum(weights * share)`, whose gradient is the share.

    Args:
      strategy: runs the replicas.
      shares: `[replicas, 2]`.
      max_gradient_norm: of the learner.
    """
    with strategy.scope():
        weights = tf.Variable(START, dtype=tf.float64)
        idle = tf.Variable(7.0, dtype=tf.float64)
        optimizer = tf.keras.optimizers.SGD(1.0, jit_compile=False)

        def loss(batch):
            return tf.reduce_sum(weights * batch) + 0.0 * idle, {"total": tf.reduce_sum(batch)}

        learner = GradientLearner(loss, [weights, idle], optimizer, strategy, max_gradient_norm)
    dataset = tf.data.Dataset.from_tensor_slices(np.array(shares, np.float64))
    iterator = iter(strategy.distribute_datasets_from_function(lambda context: dataset))
    update = learner.step(iterator)
    assert update.priorities is None
    return {
        "weights": weights.numpy().tolist(),
        "metrics": {name: float(value) for name, value in update.metrics.items()},
    }


@pytest.mark.parametrize(
    "max_gradient_norm, step",
    [(None, (3.0, 4.0)), (6.0, (3.0, 4.0)), (1.0, (0.6, 0.8))],
    ids=["no clipping", "short enough", "clipped"],
)
def test_a_gradient_is_clipped_to_its_norm(max_gradient_norm, step):
    done = learn(tf.distribute.get_strategy(), [(3.0, 4.0)], max_gradient_norm)
    np.testing.assert_allclose(done["weights"], np.array(START) - step)
    # The loss 1 * 3 - 2 * 4 before the step, and the norm before clipping.
    assert done["metrics"] == pytest.approx({"loss": -5.0, "gradient_norm": 5.0, "total": 7.0})


SHARES = ((30.0, 4.0), (-27.0, 0.0))
"""Gradients whose sum is (3, 4).  Clipped before they are summed, they would all but cancel out."""
NORMS = {None: (3.0, 4.0), 10.0: (3.0, 4.0), 1.0: (0.6, 0.8)}
"""The steps that follow by the norm that they are clipped to."""


def learn_on_two_devices():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    return [learn(strategy, SHARES, norm) for norm in NORMS]


def test_the_gradients_of_two_replicas_are_summed_and_then_clipped(on_two_devices):
    for found, step in zip(on_two_devices(__file__, "learn_on_two_devices"), NORMS.values(), strict=True):
        np.testing.assert_allclose(found["weights"], np.array(START) - step)
        assert found["metrics"] == pytest.approx({"loss": -5.0, "gradient_norm": 5.0, "total": 7.0})
