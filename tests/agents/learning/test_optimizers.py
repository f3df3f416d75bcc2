"""What optimizers do with a gradient."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.learning.optimizers import make_optimizer
from callboard.agents.schedules import Schedule
from callboard.agents.settings.optimizer_options import OPTIMIZERS
from callboard.agents.settings.optimizer_settings import OptimizerSettings
from callboard.errors import CallboardError

ADAM = OptimizerSettings(learning_rate=0.1, epsilon=1e-12, max_gradient_norm=None)


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
    optimizer = make_optimizer(ADAM, steps=4)
    # With equal gradients, a step of Adam is as long as the learning rate.
    values = apply(optimizer, [2.0] * 7)
    np.testing.assert_allclose(-np.diff([0.0, *values]), [0.1, 0.075, 0.05, 0.025, 0.0, 0.0, 0.0], atol=1e-5)


def test_without_decay_the_learning_rate_is_constant():
    values = apply(make_optimizer(dataclasses.replace(ADAM, learning_rate_decay=False), steps=4), [2.0] * 5)
    np.testing.assert_allclose(-np.diff([0.0, *values]), 0.1, rtol=1e-4)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_of_less_than_one_batch_has_a_learning_rate_too(steps):
    values = apply(make_optimizer(ADAM, steps), [2.0, 2.0])
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
    settings = dataclasses.replace(ADAM, name="rmsprop", rmsprop_decay=decay, epsilon=epsilon)
    found = apply(make_optimizer(settings, steps=None), [2.0, -1.0, 3.0], start=1.0)
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
    found = apply(make_optimizer(dataclasses.replace(ADAM, epsilon=epsilon), steps=None), [2.0, -1.0, 3.0], start=1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_adam_computes_once_what_all_variables_have_in_common(tmp_path):
    optimizer = make_optimizer(ADAM, steps=4)
    weights = [tf.Variable(tf.zeros(size)) for size in (2, 3, 4)]

    def step():
        optimizer.apply_gradients([(2.0 * tf.ones_like(weight), weight) for weight in weights])

    step()
    compiled = tf.function(step, autograph=False)
    for _ in range(2):
        compiled()
    for weight in weights:
        np.testing.assert_allclose(weight, -0.1 - 0.075 - 0.05, rtol=1e-4)
    kinds = [node.type for node in compiled.get_concrete_function().graph.get_operations()]
    assert kinds.count("ResourceApplyAdam") == 3
    # Powers of two decay rates, and that of the schedule of the learning rate.
    assert kinds.count("Pow") == 3
    # What was computed in a graph is not part of the optimizer's state.
    tf.train.Checkpoint(optimizer=optimizer).write(str(tmp_path / "saved"))


def test_every_optimizer_of_keras_makes_a_step_with_its_options():
    for name in OPTIMIZERS:
        settings = dataclasses.replace(ADAM, name=name, options={"clipvalue": 1.0, "weight_decay": 0.1})
        (value,) = apply(make_optimizer(settings, steps=4), [2.0], start=1.0)
        assert 0 < value < 1, name


def test_momentum_and_decoupled_weight_decay_by_hand():
    settings = dataclasses.replace(ADAM, name="sgd", options={"momentum": 0.5, "weight_decay": 0.2})
    expected, weight, velocity = [], 1.0, 0.0
    for gradient in (2.0, -1.0, 3.0):
        weight -= 0.1 * 0.2 * weight
        velocity = 0.5 * velocity - 0.1 * gradient
        weight += velocity
        expected.append(weight)
    found = apply(make_optimizer(settings, steps=None), [2.0, -1.0, 3.0], start=1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def make_my_optimizer(learning_rate, momentum):
    return tf.keras.optimizers.SGD(learning_rate, momentum=momentum)


def make_no_optimizer(learning_rate):
    return learning_rate


def test_a_user_s_own_optimizer():
    settings = dataclasses.replace(ADAM, name=f"{__name__}:make_my_optimizer", options={"momentum": 0.5})
    np.testing.assert_allclose(apply(make_optimizer(settings, steps=None), [1.0, 1.0]), [-0.1, -0.25], rtol=1e-6)
    with pytest.raises(CallboardError, match="must return a Keras optimizer, not float"):
        make_optimizer(dataclasses.replace(ADAM, name=f"{__name__}:make_no_optimizer"), steps=None)


def test_a_schedule_that_nothing_follows_is_refused():
    with pytest.raises(CallboardError, match="LiveSettings"):
        make_optimizer(dataclasses.replace(ADAM, learning_rate=Schedule(start=1.0)), steps=None)
