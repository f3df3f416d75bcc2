"""Policies computed with NumPy act as compiled ones do, for every agent that they are claimed for."""

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs
from small_worlds import layout_of

from callboard.agents.policies.acting import CompiledPolicy
from callboard.agents.policies.array_policy import ArrayPolicy
from callboard.agents.registry import agent_class
from callboard.data import Timestep
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

BATCH = 16
SEEN = specs.Array((4,), np.float32)
PLAIN = EnvironmentSpec(SEEN, specs.DiscreteArray(3))
SMALL = {"network.hidden_sizes": (16, 16)}
HEADS = {"network.head_sizes": (16, 16)}
CLAIMED = {
    "impala": HEADS,
    "appo": HEADS,
    "ppo": {},
    "ppo, separate": {"network.shared": False},
    "ppo, layers": {"network.activation": "relu", "network.normalize_observations": False},
    "a2c": HEADS,
    "a3c": HEADS,
    "bc": {},
}
OTHERS = {
    "apex": {},
    "r2d2": {"network.lstm_size": 4},
    "impala, large": {"network.hidden_sizes": (512, 512)},
    "impala, memory": {"network.core": "lstm", "network.lstm_size": 4},
}


def policies(name, settings):
    """A compiled policy, and one that may be computed with NumPy, of the same networks."""
    agent = from_values(agent_class(name.split(",")[0]), {**SMALL, **settings})
    layout = layout_of(PLAIN, envs_per_actor=BATCH)
    policy = agent.make_policy(agent.make_networks(layout), "train")
    return policy, *(kind(policy, layout, np.arange(BATCH), seed=3) for kind in (CompiledPolicy, ArrayPolicy))


def timestep(number):
    ones, flags = np.ones(BATCH, np.float32), np.zeros(BATCH, np.bool_)
    observation = np.random.default_rng(number).normal(size=(BATCH, 4)).astype(np.float32)
    return Timestep(observation, ones, ones, flags, flags)


def values(policy):
    return [variable.numpy() for variable in policy.variables]


def rarely(names, often):
    return [name if name in often else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", rarely(CLAIMED, ["impala", "ppo"]))
def test_actions_are_those_of_tensorflow_and_extras_but_for_their_last_bits(name):
    policy, compiled, arrays = policies(name, CLAIMED[name])
    for number in range(80):
        if number in (2, 40):
            for variable in policy.variables:
                variable.assign(variable + 0.02 * tf.ones_like(variable))
            arrays.use(values(policy))
        action, extras = compiled(timestep(number))
        found, found_extras = arrays(timestep(number))
        np.testing.assert_array_equal(found, action)
        for left, right in zip(tree.flatten(found_extras), tree.flatten(extras), strict=True):
            assert left.dtype == right.dtype
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=2e-6)
    assert arrays.computes_arrays


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", rarely(OTHERS, ["apex"]))
def test_other_policies_stay_with_tensorflow(name):
    policy, compiled, arrays = policies(name, OTHERS[name])
    arrays.use(values(policy))
    assert not arrays.computes_arrays
    for number in range(3):
        tree.map_structure(np.testing.assert_array_equal, arrays(timestep(number)), compiled(timestep(number)))


@pytest.mark.slow("daily")
def test_variables_that_may_have_changed_are_read_again():
    policy, compiled, arrays = policies("impala", HEADS)
    arrays.use(values(policy))
    arrays(timestep(0))
    compiled(timestep(0))
    for variable in policy.variables:
        variable.assign(1.5 * variable)
    arrays.forget()
    tree.map_structure(np.testing.assert_array_equal, arrays(timestep(1)), compiled(timestep(1)))


@pytest.mark.slow("daily")
def test_where_numpy_gives_something_else_tensorflow_acts(caplog):
    policy, compiled, arrays = policies("impala", HEADS)
    arrays.use([value + 1 for value in values(policy)])
    tree.map_structure(np.testing.assert_array_equal, arrays(timestep(0)), compiled(timestep(0)))
    assert not arrays.computes_arrays and "NumPy gives others" in caplog.text
