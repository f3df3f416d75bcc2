"""A2C's hyperparameters: all defaults, and their ranges."""

import pytest
from settings_checks import POLICY_VALUE_NETWORK, VALUED_BONUS, assert_refused, through_yaml, values_of

from callboard.agents.schedules import Schedule
from callboard.agents.settings.a2c_settings import A2CSettings
from callboard.settings.nested_settings import from_values


def test_the_defaults_are_those_of_the_documentation():
    assert values_of(A2CSettings) == {
        "unroll_length": 5,
        "batch_size": 32,
        "accumulate": 1,
        "reward_scale": 1.0,
        "max_policy_lag": 0,
        "discount": 0.99,
        "gae_lambda": 0.95,
        "entropy_cost": 0.003,
        "value_cost": 0.5,
        "normalize_advantages": False,
        "reward_clip": None,
        "normalize_rewards": True,
        "normalization_discount": None,
        "value_learning_rate_scale": 1.0,
        "initial_log_std": 0.0,
        "std_from_observation": False,
        "optimizer.name": "adam",
        "optimizer.learning_rate": 3e-4,
        "optimizer.learning_rate_decay": False,
        "optimizer.epsilon": 1e-5,
        "optimizer.rmsprop_decay": 0.99,
        "optimizer.max_gradient_norm": 0.5,
        "optimizer.options": {},
        **VALUED_BONUS,
        **POLICY_VALUE_NETWORK,
        "network.hidden_sizes": (),
        "frame_stack": 1,
        "network.lstm_size": 128,
        "network.head_sizes": (256, 256),
    }


def test_values_survive_yaml():
    changed = {"normalize_rewards": False, "reward_clip": 1.0, "max_policy_lag": 2, "optimizer.name": "rmsprop"}
    for settings in (A2CSettings(), from_values(A2CSettings, changed)):
        assert through_yaml(settings) == settings
    assert values_of(from_values(A2CSettings, changed)) == {**values_of(A2CSettings), **changed}


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("unroll_length", 0, "a whole number of at least 1"),
        ("batch_size", 0, "a whole number of at least 1"),
        ("max_policy_lag", -1, "a whole number of at least 0"),
        ("discount", 1.1, "a number from 0 to 1"),
        ("gae_lambda", -0.1, "a number from 0 to 1"),
        ("entropy_cost", -0.01, f"a number of at least 0 or {Schedule.description}"),
        ("value_cost", float("nan"), "a number of at least 0"),
        ("reward_clip", 0.0, "a number above 0, a list of 2 numbers, such as [0.5, 1.0] or null"),
        ("initial_log_std", 2.5, "a number from -10 to 2"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(A2CSettings(), name, value, allowed)
