"""What policies, torsos, cores and losses of users return is checked where they are traced."""

from typing import Any, cast

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from callboard.agents.learning.gradient_step import LossOutput, check_loss_output
from callboard.agents.losses.replicas import Mean
from callboard.agents.policies.acting import trace_layout
from callboard.agents.policies.output_checks import check_update, plain_metrics
from callboard.agents.ppo import Ppo
from callboard.data import Layout, Priorities, Update
from callboard.errors import CallboardError
from callboard.launch.run_directory.metric_names import NAMES_OF_LEARNERS
from callboard.networks.heads import PolicyValueHead
from callboard.networks.network import Network
from callboard.networks.recurrent import FeedForwardCore
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(specs.Array((2,), "float32"), specs.DiscreteArray(3, dtype="int32"))
LAYOUT = Layout(SPEC, envs_per_actor=2, actors=1, shards=1, replicas=1, seed=1, max_steps=1000)


class OwnPolicy(tf.Module):
    def __init__(self, outputs):
        self.outputs = outputs

    def initial_state(self, batch_size):
        return {"sum": tf.zeros((batch_size, 3))}

    def __call__(self, timestep, state, slot, seed):
        return self.outputs(tf.zeros_like(slot), state)


def trace(outputs):
    agent = Ppo()
    object.__setattr__(agent, "make_policy", lambda networks, mode: OwnPolicy(outputs))
    return trace_layout(agent, LAYOUT, tf.Module())


def test_a_policy_that_returns_what_it_should_is_traced():
    layout = trace(lambda action, state: (action, {"value": tf.cast(action, tf.float32)}, state))
    assert layout.record.action == tf.TensorSpec((), tf.int32) and layout.record.extras["value"].dtype == tf.float32


@pytest.mark.parametrize(
    "outputs, words",
    [
        (lambda action, state: action, r"policy OwnPolicy returns int32 \(1,\), not \(action, extras, state\)"),
        (lambda action, state: (action, ()), r"returns \(int32 \(1,\), \(\)\), not \(action, extras, state\)"),
        (
            lambda action, state: (tf.cast(action, tf.float32), (), state),
            r"action is float32 \(1,\), and must be int32",
        ),
        (
            lambda action, state: (action[:, tf.newaxis], (), state),
            r"action is int32 \(1, 1\), and must be int32 \(None,\)",
        ),
        (lambda action, state: ({"move": action}, (), state), r"the action is {move: int32 \(1,\)}, and must be int32"),
        (lambda action, state: (action, (), ()), r"the state is \(\), and must be {sum: float32 \(1, 3\)}"),
        (lambda action, state: (action, (), {"sum": state["sum"][:, :2]}), r"the state is {sum: float32 \(1, 2\)}"),
        (lambda action, state: (action, {"value": tf.zeros(())}, state), r"extras\['value'\] are float32 \(\)"),
        (lambda action, state: (action, {"value": None}, state), r"extras\['value'\] are a NoneType"),
    ],
)
def test_a_policy_that_returns_something_else_is_told_so(outputs, words):
    with pytest.raises(CallboardError, match=words):
        trace(outputs)


class Torso(tf.keras.layers.Layer):
    def __init__(self, outputs):
        super().__init__()
        self.outputs = outputs

    def call(self, observation, training=False):
        return self.outputs(observation)


class Core(FeedForwardCore):
    def __init__(self, outputs=None, state=None):
        super().__init__()
        self.outputs, self.state = outputs or (lambda features, state: (features, state)), state

    def build(self, feature_size):
        self.state_spec = {"sum": tf.TensorSpec((feature_size,), tf.float32)}

    def initial_state(self, batch_size):
        return {"sum": tf.zeros((batch_size, 2))} if self.state is None else self.state

    def step(self, features, state, first):
        return self.outputs(features, state)


@pytest.mark.parametrize(
    "torso, core, words",
    [
        (
            lambda x: {"a": x},
            FeedForwardCore(),
            r"a torso must give features \[batch, size\], .* this one gives {a: float32",
        ),
        (
            lambda x: (x, x),
            FeedForwardCore(),
            r"a torso must give features .* gives \(float32 \(2, 2\), float32 \(2, 2\)\)",
        ),
        (lambda x: x[:, :, tf.newaxis], FeedForwardCore(), r"a torso must give features .* gives \(2, 2, 1\)"),
        (lambda x: x[:, :0], FeedForwardCore(), r"features .* at least 1; for a batch of 2 this one gives \(2, 0\)"),
        (lambda x: x[:1], FeedForwardCore(), r"features \[batch, size\], .* for a batch of 2 this one gives \(1, 2\)"),
        (lambda x: tf.repeat(x, 2, axis=0), FeedForwardCore(), r"for a batch of 2 this one gives \(4, 2\)"),
        (lambda x: tf.cast(x, tf.int32), FeedForwardCore(), "a torso must give floats; this one gives int32"),
        (
            lambda x: x,
            Core(lambda x, state: x),
            r"core Core: step must return features and state, not float32 \(2, 2\)",
        ),
        (lambda x: x, Core(lambda x, state: (x[0], state)), r"a core must give features .* gives \(2,\)"),
        (
            lambda x: x,
            Core(lambda x, state: (x, ())),
            r"core Core: step returns the state \(\), .* stands for {sum: float32",
        ),
        (
            lambda x: x,
            Core(state=()),
            r"core Core: initial_state\(2\) returns \(\), and its state_spec stands for {sum:",
        ),
    ],
)
def test_parts_of_a_network_that_return_something_else_are_named(torso, core, words):
    with pytest.raises(CallboardError, match=words):
        Network(SPEC, Torso(torso), core, PolicyValueHead(3))


@pytest.mark.parametrize(
    "output, words",
    [
        (tf.zeros(()), "a loss returns a LossOutput, not .*Tensor"),
        (
            LossOutput(tf.zeros(()), cast(Any, [1.0])),
            "the metrics of a LossOutput are a dict of numbers by name, not list",
        ),
        (LossOutput(tf.zeros((4,)), {}), r"the loss of a LossOutput is a scalar, .* has the shape \(4,\)"),
        (LossOutput({"a_loss": tf.zeros((4,))}, {}), r"the loss of a LossOutput is a scalar, .* has the shape \(4,\)"),
    ],
)
def test_a_loss_that_returns_something_else_is_told_so(output, words):
    with pytest.raises(CallboardError, match=words):
        check_loss_output(output)
    check_loss_output(LossOutput({"a_loss": tf.zeros(())}, {"a": 1.0}))


def test_metrics_of_a_loss_are_scalars_with_names():
    mean, numbers = Mean(tf.ones(()), tf.ones(())), {"a": 1, "b": np.float32(1), "c": tf.ones(()), "d": True}
    check_loss_output(LossOutput(tf.zeros(()), {**numbers, "mean": mean}))
    wrong = {"advantage": tf.ones((3,)), 7: tf.ones(()), "none": None, "mean": Mean(tf.ones((2,)), tf.ones(()))}
    with pytest.raises(CallboardError) as caught:
        check_loss_output(LossOutput(tf.zeros(()), {**numbers, **wrong}))
    assert str(caught.value) == (
        "the metrics of a LossOutput are scalars by name, not {'advantage': float32 (3,), 7: float32 (), "
        "'none': a NoneType, 'mean': (float32 (2,), float32 ())}"
    )


ITEMS = Priorities(tf.zeros(2, tf.uint64), tf.zeros(2, tf.int32), tf.zeros(2))


@pytest.mark.parametrize(
    "update, words",
    [
        (None, r"learner Module: step returns a NoneType, not an Update\(metrics, priorities, steps\)"),
        ({"loss": 1.0}, "step returns a dict, not an Update"),
        (Update(cast(Any, [1.0])), "step returns metrics that are a list, not a dict of scalars by name"),
        (Update({}, 1), "step returns priorities that are an int, not Priorities or None"),
        (Update({}, ITEMS.priority), "step returns priorities that are an? .*Tensor, not Priorities or None"),
        (Update({}, steps=cast(Any, None)), "step returns steps that are None, not the number of learner steps made"),
        (Update({}, finite=("loss",)), "step returns 'loss' in finite, which is none of its metrics"),
    ],
)
def test_a_learner_that_returns_something_else_is_told_so(update, words):
    with pytest.raises(CallboardError, match=words):
        check_update(tf.Module(), update)
    check_update(tf.Module(), Update({"loss": 1.0}, ITEMS, 2, ("loss",)))


@pytest.mark.parametrize(
    "metrics, words",
    [
        ({"size": tf.ones(3)}, r"learner Module: the metric size is float32 \(3,\), not a scalar"),
        ({"size": None}, "the metric size is a NoneType, not a scalar"),
        ({"step": 1.0}, "the name 'step' of a metric is a metric of every run: rename it"),
        ({3: 1.0}, "the name 3 of a metric is no text"),
    ],
)
def test_metrics_of_a_learner_are_scalars_with_names_of_their_own(metrics, words):
    with pytest.raises(CallboardError, match=words):
        plain_metrics(tf.Module(), metrics, NAMES_OF_LEARNERS)
    assert plain_metrics(tf.Module(), {"loss": tf.constant(2.0)}, NAMES_OF_LEARNERS) == {"loss": 2.0}


def test_networks_and_policies_are_modules():
    agent = Ppo()
    with pytest.raises(CallboardError, match="Ppo.make_networks must return a tf.Module, .*, not a dict"):
        trace_layout(agent, LAYOUT, {})
    object.__setattr__(agent, "make_policy", lambda networks, mode: object())
    with pytest.raises(CallboardError, match="Ppo.make_policy must return a tf.Module, .*, not an object"):
        trace_layout(agent, LAYOUT, tf.Module())
