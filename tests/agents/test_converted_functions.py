"""Parts in functions of users that TensorFlow converts to graphs, as `tf.function` does unless it is told not to."""

import dm_env.specs
import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.losses.n_step import n_step_sequence, n_step_window
from callboard.networks.action_policy import action_policy
from callboard.networks.factory import policy_value_network
from callboard.networks.network import Inputs
from callboard.networks.target_update import copy_weights_every, move_weights
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(
    {"a": dm_env.specs.Array((2,), np.float32), "b": dm_env.specs.Array((3,), np.float32)},
    {"go": dm_env.specs.DiscreteArray(3), "force": dm_env.specs.BoundedArray((2,), np.float32, -1, 1)},
)


@pytest.mark.slow("daily")
def test_returns():
    ones, valid = tf.ones((3, 2)), tf.ones((3, 2), tf.bool)
    assert tf.function(n_step_window)(ones, ones, valid).returns.numpy().tolist() == [3, 3]
    assert tf.function(n_step_sequence)(ones, ones, valid, 2).returns.numpy().tolist() == [[2, 2], [2, 2], [1, 1]]


@pytest.mark.slow("daily")
def test_networks_and_actions():
    network, target = (policy_value_network(SPEC, normalize_observations=True) for _ in range(2))
    policy = action_policy(SPEC, network)
    x, first = {"a": tf.ones((4, 2)), "b": tf.ones((4, 3))}, tf.zeros(4, tf.bool)

    @tf.function
    def act_and_update(x, first):
        network.normalizer.update(x, leading=1)
        outputs, _ = network.step(Inputs(x), (), first)
        chosen = policy.sample(outputs, x, tf.range(4), tf.constant([0, 1]))
        action = policy.to_environment(chosen)
        move_weights(network, target, 0.5)
        copy_weights_every(1, tf.constant(1), network, target)
        numbers = policy.from_record(action, policy.numbers(chosen))
        return action, policy.evaluate(outputs, x, numbers).log_prob

    action, log_prob = act_and_update(x, first)
    assert action["force"].shape == (4, 2) and np.isfinite(log_prob).all()
    for one, other in zip(network.variables, target.variables, strict=True):
        np.testing.assert_array_equal(one, other)
