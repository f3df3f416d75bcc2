"""The gradient learner: optimizers, and several updates in one call."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from callboard.agents.acting import trace_layout
from callboard.agents.apex import Apex
from callboard.agents.gradient_learner import GradientLearner, make_optimizer
from callboard.agents.gradient_step import LossOutput, Objective
from callboard.agents.sac import Sac
from callboard.data import ItemInfo, Layout, Priorities, Record, Sample
from callboard.specs import EnvironmentSpec


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


BATCH = 4
UPDATES = 3
OBSERVATION = dm_specs.Array((2,), np.float32)
SMALL: dict[str, Any] = dict(batch_size=BATCH, hidden_sizes=(4,))
AGENTS = {
    # The target network is renewed in the middle of a call.
    "apex": (
        Apex(**SMALL, n_step=2, target_update_period=2, learning_rate=0.01),
        EnvironmentSpec(OBSERVATION, dm_specs.DiscreteArray(3)),
    ),
    # Draws other noise at every step.
    "sac": (
        Sac(**SMALL, critic_learning_rate=0.01),
        EnvironmentSpec(OBSERVATION, dm_specs.BoundedArray((2,), np.float32, -1.0, 1.0)),
    ),
}


def random_sample(layout, length, seed):
    rng = np.random.default_rng(seed)

    def values(spec, leading):
        drawn = rng.uniform(-1, 1, (*leading, *spec.shape))
        return drawn.astype(spec.dtype.as_numpy_dtype) if spec.dtype.is_floating else np.zeros_like(drawn, int)

    record: Record = tree.map_structure(lambda spec: values(spec, (length, BATCH)), layout.record)
    flag = np.zeros((length + 1, BATCH), bool)
    observation = tree.map_structure(lambda spec: values(spec, (length + 1, BATCH)), layout.record.observation)
    info = ItemInfo(
        key=np.arange(BATCH, dtype=np.uint64) + 10 * seed,
        shard=np.full(BATCH, seed, np.int32),
        probability=rng.uniform(0.01, 0.1, BATCH),
        items=np.full(BATCH, 50, np.int64),
    )
    return Sample(record._replace(observation=observation, first=flag, last=flag), (), info)


def stacked(samples):
    return tree.map_structure(lambda *leaves: np.stack(leaves), *samples)


def learn(name, at_once):
    """Weights after the updates of two calls, or of as many as there are batches, and what each call returned."""
    agent, spec = AGENTS[name]
    agent = type(agent)(**{**vars(agent), "updates_per_call": UPDATES if at_once else 1})
    layout = Layout(spec, BATCH, actors=1, shards=1, replicas=1, seed=1, max_steps=10**6)
    tf.keras.utils.set_random_seed(1)
    networks = agent.make_networks(layout)
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    layout = trace_layout(agent, layout, networks)
    samples = [random_sample(layout, getattr(agent, "n_step", 1), seed) for seed in range(2 * UPDATES)]
    if at_once:
        samples = [stacked(samples[:UPDATES]), stacked(samples[UPDATES:])]
    dataset = iter(tf.data.Dataset.from_generator(lambda: samples, output_signature=spec_of(samples[0])))
    updates = [learner.step(dataset) for _ in samples]
    return [variable.numpy() for variable in networks.variables], updates


def spec_of(sample):
    return tree.map_structure(lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), sample)


@pytest.mark.parametrize("name", AGENTS)
def test_a_call_of_several_updates_does_what_they_do_in_turn(name):
    one_by_one, single = learn(name, at_once=False)
    together, calls = learn(name, at_once=True)
    for weight, expected in zip(together, one_by_one, strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=1e-6)
    assert [update.steps for update in single] == [1] * 2 * UPDATES
    assert [update.steps for update in calls] == [UPDATES] * 2
    for number, call in enumerate(calls):
        of_call = single[number * UPDATES :][:UPDATES]
        # Metrics are those of the last one.
        assert set(call.metrics) == set(of_call[-1].metrics)
        for metric, value in call.metrics.items():
            assert float(value) == pytest.approx(float(of_call[-1].metrics[metric]), rel=1e-3, abs=1e-5)
        if name == "apex":
            leaves = zip(*(update.priorities for update in of_call), strict=True)
            expected = Priorities(*map(np.concatenate, leaves))
            np.testing.assert_array_equal(call.priorities.key, expected.key)
            np.testing.assert_array_equal(call.priorities.shard, expected.shard)
            np.testing.assert_allclose(call.priorities.priority, expected.priority, rtol=1e-3, atol=1e-5)
        else:
            assert call.priorities is None


def test_each_update_begins_with_what_the_one_before_has_left():
    """A chain that shows any other order: x <- 2 x + batch."""
    x = tf.Variable(0.0)
    seen = []

    def loss(sample, seed):
        tf.numpy_function(lambda seed: seen.append(seed.tolist()), [seed], [])
        return LossOutput(-(x**2) / 2 - x * sample.record.reward, {"value": x.read_value()})

    objective = Objective("loss", [x], tf.keras.optimizers.SGD(1.0, jit_compile=False))
    learner = GradientLearner(loss, [objective], tf.distribute.get_strategy(), updates_per_call=4, seed=7)
    flags = (tf.zeros((4, 1)),) * 3
    record = Record(
        (), *flags[:2], (), tf.constant([1.0, 10.0, 100.0, 1000.0]), flags[2], (), tf.ones((4, 1, 2), tf.int32)
    )
    calls = [learner.step(iter([Sample(record, ())])) for _ in range(2)]
    assert [float(call.metrics["value"]) for call in calls] == [124, 10108]
    assert float(x) == 16 * 1248 + 1248
    assert seen == [[7, step] for step in range(8)]
    # All weights are of step 1; the last updates are those of steps 3 and 7.
    assert [float(call.metrics["policy_lag"]) for call in calls] == [2, 6]
