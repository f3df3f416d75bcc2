"""Two learning rates in one optimizer, against the optimizers apart from each other."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from small_worlds import SPEC, layout_of

from callboard.agents.a2c import A2C
from callboard.agents.impala import Impala
from callboard.agents.learning.live_settings import LiveSettings
from callboard.agents.learning.optimizers import make_objective, make_optimizer, make_split_optimizer
from callboard.agents.learning.split_optimizer import SplitOptimizer
from callboard.agents.ppo import Ppo
from callboard.agents.settings.optimizer_settings import OptimizerSettings
from callboard.errors import CallboardError
from callboard.settings.nested_settings import from_values, with_values

ADAM = OptimizerSettings(learning_rate=0.1, epsilon=1e-8, max_gradient_norm=None)


def steps(optimizer, variables, number=3):
    optimizer.build(variables)
    for _ in range(number):
        gradients = [tf.ones_like(variable) * (position + 1.0) for position, variable in enumerate(variables)]
        optimizer.apply_gradients(zip(gradients, variables, strict=True), skip_gradients_aggregation=True)
    return [variable.numpy() for variable in variables]


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", ["adam", "rmsprop", "sgd"])
def test_each_variable_has_its_learning_rate(name):
    settings = dataclasses.replace(ADAM, name=name)
    faster = dataclasses.replace(settings, learning_rate=0.2)
    variables = [tf.Variable(1.0), tf.Variable(2.0), tf.Variable(3.0)]
    found = steps(make_objective("loss", variables, settings, 10, variables[1:2], 2.0).optimizer, variables)
    apart = [tf.Variable(1.0), tf.Variable(2.0), tf.Variable(3.0)]
    slow = steps(make_optimizer(settings, 10), apart)
    fast = steps(make_optimizer(faster, 10), [tf.Variable(1.0), tf.Variable(2.0)])
    np.testing.assert_allclose(found, [slow[0], fast[1], slow[2]], rtol=1e-6)


def test_an_assigned_rate_is_scaled():
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    optimizer = make_split_optimizer(dataclasses.replace(ADAM, name="sgd"), None, variables[1:], 0.5)
    optimizer.build(variables)
    optimizer.learning_rate = 1.0
    optimizer.apply_gradients([(tf.constant(1.0), variable) for variable in variables])
    assert [float(variable) for variable in variables] == [-1.0, -0.5] and float(optimizer.learning_rate) == 1.0


def test_changes_of_the_learning_rate_reach_both():
    live = LiveSettings(with_values(Impala(), {"optimizer.learning_rate_decay": False, "optimizer.name": "sgd"}))
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    optimizer = make_split_optimizer(live.agent.optimizer, 10, variables[1:], 0.5)
    live.change({"optimizer.learning_rate": 1.0})
    assert steps(optimizer, variables, number=1) == [-1.0, -1.0]


@pytest.mark.slow("daily")
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", [Impala, Ppo, A2C])
def test_agents_scale_what_only_the_value_has(kind, shared):
    agent = from_values(
        kind, {"value_learning_rate_scale": 3.0, "network.shared": shared, "network.hidden_sizes": (8, 8)}
    )
    layout = layout_of(SPEC)
    networks = agent.make_networks(layout)
    learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    optimizer = learner.optimizers[0] if kind is Impala else learner.optimizer
    network = networks if kind is Impala else networks.network
    assert isinstance(optimizer, SplitOptimizer)
    assert len(network.value_variables) == (6 if shared else 10) < len(network.trainable_variables)


def test_a_network_without_variables_of_the_value_is_refused():
    with pytest.raises(CallboardError, match="head have a property value_variables, or set agent.value_lear"):
        make_split_optimizer(ADAM, 10, [], 2.0)
