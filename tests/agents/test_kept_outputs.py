"""What the networks of PPO and PQN compute does not move with the statistics of observations."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from slow_cases import slow_but
from update_on_replicas import change_of_outputs

AGENTS = ("ppo", "ppo-gaussian", "pqn")
PROGRAM = pathlib.Path(__file__).with_name("update_on_replicas.py")


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", slow_but(AGENTS, "ppo", "ppo-gaussian"))
def test_outputs_stay_while_the_statistics_move(name):
    change, _ = change_of_outputs(name, tf.distribute.get_strategy())
    assert change < 1e-5


# The mechanism is tested fast on two devices in `networks/test_input_layers.py`.
@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
def test_outputs_stay_on_two_devices(name, on_two_devices):
    assert on_two_devices(PROGRAM, "changes_on_devices", ["2"], [name])["2"][name] < 1e-5


@pytest.mark.slow("daily")
@pytest.mark.usefixtures("eagerly")
def test_frozen_layers_do_not_make_up_for_the_move():
    change, network = change_of_outputs("ppo", tf.distribute.get_strategy(), freeze=["torso"])
    rng = np.random.default_rng(0)
    for variable in network.trainable_variables:
        expected = rng.normal(size=variable.shape, scale=0.5)
        np.testing.assert_allclose(variable, expected, rtol=1e-6)
    assert change > 1e-3
