"""The gradient learner: several updates in one call."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from slow_cases import slow_but

from callboard.agents.apex import Apex
from callboard.agents.learning.gradient_learner import GradientLearner
from callboard.agents.learning.gradient_step import LossOutput, Objective
from callboard.agents.policies.acting import trace_layout
from callboard.agents.sac import Sac
from callboard.data import ItemInfo, Layout, Priorities, Record, Sample
from callboard.errors import CallboardError
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

BATCH = 4
UPDATES = 3
OBSERVATION = dm_specs.Array((2,), np.float32)
SMALL: dict[str, Any] = {"batch_size": BATCH, "normalize_rewards": False, "network.hidden_sizes": (4,)}
AGENTS = {
    # The target network is updated in the middle of a call.
    "apex": (
        from_values(Apex, {**SMALL, "n_step": 2, "target_update_period": 2, "optimizer.learning_rate": 0.01}),
        EnvironmentSpec(OBSERVATION, dm_specs.DiscreteArray(3)),
    ),
    # Samples other noise at every step.
    "sac": (
        from_values(Sac, {**SMALL, "critic_optimizer.learning_rate": 0.01}),
        EnvironmentSpec(OBSERVATION, dm_specs.BoundedArray((2,), np.float32, -1.0, 1.0)),
    ),
}


def random_sample(layout, length, seed):
    rng = np.random.default_rng(seed)

    def values(spec, leading):
        sampled = rng.uniform(-1, 1, (*leading, *spec.shape))
        return sampled.astype(spec.dtype.as_numpy_dtype) if spec.dtype.is_floating else np.zeros_like(sampled, int)

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


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", slow_but(AGENTS, "apex"))
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
    flags = (tf.zeros((4, 2), tf.bool),) * 2
    record = Record(
        (), *flags, (), tf.constant([1.0, 10.0, 100.0, 1000.0]), tf.ones((4, 1)), (), tf.ones((4, 1, 2), tf.int32)
    )
    calls = [learner.step(iter([Sample(record, ())])) for _ in range(2)]
    assert [float(call.metrics["value"]) for call in calls] == [124, 10108]
    assert float(x) == 16 * 1248 + 1248
    assert seen == [[7, step] for step in range(8)]
    # All weights are of step 1; the last updates are those of steps 3 and 7.
    assert [float(call.metrics["policy_lag"]) for call in calls] == [2, 6]


@pytest.mark.slow("daily")
@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_a_loss_with_a_period_is_learned_from_at_the_first_step_and_every_period_later(at_once):
    often, seldom = tf.Variable(0.0), tf.Variable(0.0)
    objectives = [
        Objective("often_loss", [often], tf.keras.optimizers.SGD(1.0, jit_compile=False)),
        Objective("seldom_loss", [seldom], tf.keras.optimizers.SGD(1.0, jit_compile=False), period=3),
    ]

    def loss(sample):
        reward = tf.reduce_sum(sample.record.reward)
        return LossOutput({"often_loss": -often * reward, "seldom_loss": -seldom * reward}, {})

    learner = GradientLearner(loss, objectives, tf.distribute.get_strategy(), updates_per_call=at_once)
    rewards = tf.reshape(tf.range(10.0), (10, 1) if at_once == 1 else (-1, at_once, 1))
    discount = tf.ones(rewards.shape[1:])
    flags = tf.zeros((*discount.shape[:-1], 2), tf.bool)
    version = tf.zeros((*rewards.shape[1:], 2), tf.int32)
    records = [Record((), flags, flags, (), one, discount, (), version) for one in rewards]
    updates = [learner.step(iter([Sample(record, ())])) for record in records]
    assert float(often) == sum(range(10)) and float(seldom) == 0 + 3 + 6 + 9
    # The norm is that of the newest step that had one.
    due = [number // 3 * 3 for number in range(at_once - 1, 10, at_once)]
    assert [float(update.metrics["seldom_gradient_norm"]) for update in updates] == due
    assert all(set(update.finite) <= set(update.metrics) for update in updates)


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("is_sum", [False, True])
@pytest.mark.parametrize("updates_per_call", [1, 2])
def test_accumulated_batches_are_one_larger_batch(is_sum, updates_per_call):
    """Linear regression with clipped gradients, against NumPy."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 12, 5)), rng.normal(size=(2, 12))
    weights = tf.Variable(np.zeros(5))
    divisor = 1 if is_sum else 3

    def loss(sample, seed):
        error = tf.linalg.matvec(sample.record.observation, weights) - sample.record.reward
        seen.append(0)
        return LossOutput(tf.reduce_sum(tf.square(error)) / divisor, {"seed": seed[1]}, error)

    seen = []
    optimizer = tf.keras.optimizers.SGD(0.01, jit_compile=False)
    objective = Objective("loss", [weights], optimizer, max_gradient_norm=1.5, is_sum=is_sum)
    strategy = tf.distribute.get_strategy()
    learner = GradientLearner(loss, [objective], strategy, updates_per_call, seed=7, accumulate=4)
    nothing: dict[str, Any] = dict.fromkeys(Record._fields, ())

    def element(call):
        """Batches of 3, 4 for each update."""
        leaves = {"observation": x, "reward": y}
        shape = (2, 4, 3) if updates_per_call == 1 else (1, 8, 3)
        parts = {name: tf.constant(leaf.reshape(*shape, *leaf.shape[2:])[call]) for name, leaf in leaves.items()}
        version = tf.zeros((4 * updates_per_call, 1, 1, 2), tf.int32)
        info = ItemInfo(*(tf.zeros((4 * updates_per_call, 3)),) * 4)
        return Sample(Record(**{**nothing, **parts, "version": version}), (), info)

    updates = [learner.step(iter([element(call)])) for call in range(2 // updates_per_call)]
    expected = np.zeros(5)
    for number in range(2):
        error = x[number] @ expected - y[number]
        gradient = 2 * error @ x[number] / (1 if is_sum else 12)
        norm = np.linalg.norm(gradient)
        expected -= 0.01 * gradient * min(1.0, 1.5 / norm)
    np.testing.assert_allclose(weights, expected)
    assert float(updates[-1].metrics["gradient_norm"]) == pytest.approx(norm)
    assert float(updates[-1].metrics["seed"]) == np.mean([4, 5, 6, 7])
    assert sum(update.steps for update in updates) == 2
    assert updates[-1].priorities.priority.shape == (12 * updates_per_call,)


def learn_once(change):
    """Makes a learner step with a loss whose result is changed."""
    agent, spec = AGENTS["apex"]
    layout = Layout(spec, BATCH, actors=1, shards=1, replicas=1, seed=1, max_steps=10**6)
    weight = tf.Variable(np.ones(BATCH, np.float32))
    objective = Objective("loss", [weight], tf.keras.optimizers.SGD(1.0, jit_compile=False))

    def loss(sample):
        return change(LossOutput(tf.reduce_sum(weight), {}, tf.abs(weight)))

    learner = GradientLearner(loss, [objective], tf.distribute.get_strategy())
    layout = trace_layout(agent, layout, agent.make_networks(layout))
    return learner.step(iter([tree.map_structure(tf.constant, random_sample(layout, 2, 1))]))


@pytest.mark.parametrize(
    "priorities, found",
    [
        (lambda one: tf.reduce_mean(one), r"float32 \(\)"),
        (lambda one: one[:, tf.newaxis], r"float32 \(4, 1\)"),
        (lambda one: tf.stack([one, one]), r"float32 \(2, 4\)"),
        (lambda one: one[:-1], r"float32 \(3,\)"),
        (lambda one: 1.0, "a float"),
    ],
)
def test_priorities_of_another_shape_are_refused_at_the_first_step(priorities, found):
    with pytest.raises(CallboardError, match=rf"priorities .* one number for each item, \(4,\), and these are {found}"):
        learn_once(lambda output: output._replace(priorities=priorities(output.priorities)))
    assert learn_once(lambda output: output).priorities.priority.shape == (BATCH,)


def test_a_metric_of_the_learner_is_not_replaced():
    with pytest.raises(CallboardError, match=r"of the learner's own \(policy_lag\): rename it"):
        learn_once(lambda output: output._replace(metrics={"policy_lag": output.loss}))
