"""One gradient step: what becomes of a gradient on its way to the optimizer, on one device and on two."""

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.learning.gradient_step import GradientStep, LossOutput, Objective
from callboard.errors import CallboardError

START = (1.0, -2.0)


def learn(strategy, shares, max_gradient_norm):
    """Weights and metrics after one step of length 1 on `sum(weights * share)`, whose gradient is the share.

    Args:
      strategy: runs the replicas.
      shares: `[replicas, 2]`.
      max_gradient_norm: of the step.
    """
    with strategy.scope():
        weights = tf.Variable(START, dtype=tf.float64)
        idle = tf.Variable(7.0, dtype=tf.float64)
        optimizer = tf.keras.optimizers.SGD(1.0, jit_compile=False)
        step = GradientStep([Objective("loss", [weights, idle], optimizer, max_gradient_norm)], strategy)

    def loss(batch):
        return LossOutput(tf.reduce_sum(weights * batch) + 0.0 * idle, {"total": tf.reduce_sum(batch)}, batch[0:1])

    dataset = tf.data.Dataset.from_tensor_slices(np.array(shares, np.float64))
    iterator = iter(strategy.distribute_datasets_from_function(lambda context: dataset))
    metrics, priorities = tf.function(lambda batch: step(loss, batch), autograph=False)(next(iterator))
    return {
        "weights": weights.numpy().tolist(),
        "metrics": {name: float(value) for name, value in metrics.items()},
        "priorities": priorities.numpy().tolist(),
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
    assert done["priorities"] == [3.0]


def test_several_losses_are_taken_at_the_same_weights():
    first, second = tf.Variable(2.0), tf.Variable(3.0)
    objectives = [
        Objective("one_loss", [first], tf.keras.optimizers.SGD(1.0, jit_compile=False)),
        Objective("two_loss", [second], tf.keras.optimizers.SGD(0.5, jit_compile=False)),
    ]
    step = GradientStep(objectives, tf.distribute.get_strategy())

    def loss(factor):
        return LossOutput({"one_loss": factor * first * second, "two_loss": first * second}, {})

    metrics, priorities = tf.function(lambda factor: step(loss, factor), autograph=False)(tf.constant(10.0))
    assert {name: float(value) for name, value in metrics.items()} == {
        "one_loss": 60.0,
        "two_loss": 6.0,
        "one_gradient_norm": 30.0,
        "two_gradient_norm": 2.0,
    }
    assert set(step.finite) == metrics.keys() and priorities == ()
    assert (float(first), float(second)) == (2 - 10 * 3, 3 - 0.5 * 2)


SHARES = ((30.0, 4.0), (-27.0, 0.0))
"""Gradients whose sum is (3, 4).  Clipped before they are summed, they would all but cancel out."""
NORMS = {None: (3.0, 4.0), 10.0: (3.0, 4.0), 1.0: (0.6, 0.8)}
"""The steps that follow by the norm that they are clipped to."""


def learn_on_two_devices():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    return [learn(strategy, SHARES, norm) for norm in NORMS]


@pytest.mark.slow("daily")
def test_the_gradients_of_two_replicas_are_summed_and_then_clipped(on_two_devices):
    for found, step in zip(on_two_devices(__file__, "learn_on_two_devices"), NORMS.values(), strict=True):
        np.testing.assert_allclose(found["weights"], np.array(START) - step)
        assert found["metrics"] == pytest.approx({"loss": -5.0, "gradient_norm": 5.0, "total": 7.0})
        assert found["priorities"] == [30.0, -27.0]


def test_a_loss_that_is_not_due_leaves_its_variables_and_its_optimizer_as_they_are():
    often, seldom = tf.Variable(2.0), tf.Variable(3.0)
    objectives = [
        Objective("often_loss", [often], tf.keras.optimizers.SGD(1.0, jit_compile=False)),
        Objective("seldom_loss", [seldom], tf.keras.optimizers.Adam(1.0, jit_compile=False), period=3),
    ]
    step = GradientStep(objectives, tf.distribute.get_strategy())
    assert step.periodic and step.due(0) == step.due(6) == ("often_loss", "seldom_loss")
    assert step.due(1) == step.due(5) == ("often_loss",)
    losses = {"often_loss": often, "seldom_loss": seldom}
    each = [step(lambda: LossOutput({name: 1.0 * one for name, one in losses.items()}, {}), due=("often_loss",))[0]]
    assert (often.numpy(), seldom.numpy(), objectives[1].optimizer.iterations.numpy()) == (1.0, 3.0, 0)
    each.append(step(lambda: LossOutput({name: 1.0 * one for name, one in losses.items()}, {}))[0])
    assert often.numpy() == 0.0 and seldom.numpy() < 3.0 and objectives[1].optimizer.iterations.numpy() == 1
    assert each[0].keys() == {"often_loss", "seldom_loss", "often_gradient_norm"}
    assert each[1].keys() == each[0].keys() | {"seldom_gradient_norm"}


@pytest.mark.parametrize(
    "output, words",
    [
        (
            lambda x: LossOutput({"loss": x}, {}),
            r"loss of a LossOutput is the scalar loss, not {loss: float32 \(\)}",
        ),
        (lambda x: LossOutput(x, {"gradient_norm": x}), r"of the learner's own \(gradient_norm\): rename it"),
        (lambda x: LossOutput(tf.stop_gradient(x), {}), "no gradient of loss reaches the variables that it trains: "),
    ],
)
def test_a_loss_that_the_step_cannot_use_is_told_so(output, words):
    weight = tf.Variable(2.0)
    objective = Objective("loss", [weight], tf.keras.optimizers.SGD(1.0, jit_compile=False))
    step = GradientStep([objective], tf.distribute.get_strategy())
    with pytest.raises(CallboardError, match=words):
        step(lambda: output(1.0 * weight))


def test_several_losses_are_named():
    weight = tf.Variable(2.0)
    objectives = [
        Objective(name, [weight], tf.keras.optimizers.SGD(1.0, jit_compile=False)) for name in ("one_loss", "two_loss")
    ]
    step = GradientStep(objectives, tf.distribute.get_strategy())
    for loss in (lambda: 1.0 * weight, lambda: {"one_loss": 1.0 * weight}):
        with pytest.raises(CallboardError, match="is a scalar for each of one_loss, two_loss, not"):
            step(lambda loss=loss: LossOutput(loss(), {}))
