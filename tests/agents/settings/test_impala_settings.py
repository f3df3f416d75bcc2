"""IMPALA's hyperparameters: all defaults, and their ranges."""

import pytest
from settings_checks import POLICY_VALUE_NETWORK, VALUED_BONUS, assert_refused, through_yaml, values_of

from callboard.agents.settings.impala_settings import ImpalaSettings
from callboard.settings.nested_settings import from_values


def test_the_defaults_are_those_of_the_documentation():
    assert values_of(ImpalaSettings) == {
        "unroll_length": 10,
        "batch_size": 16,
        "accumulate": 1,
        "reward_scale": 1.0,
        "updates_per_call": 1,
        "queue_batches": 1,
        "discount": 0.99,
        "entropy_cost": 0.003,
        "baseline_cost": 0.5,
        "value_learning_rate_scale": 1.0,
        "clip_rho": 1.0,
        "clip_c": 1.0,
        "clip_policy_gradient_rho": 1.0,
        "lambda_": 0.95,
        "initial_log_std": 0.0,
        "std_from_observation": False,
        "reward_clip": None,
        "normalize_rewards": True,
        "normalization_discount": None,
        "optimizer.name": "adam",
        "optimizer.learning_rate": 4e-4,
        "optimizer.learning_rate_decay": True,
        "optimizer.epsilon": 1.6e-3,
        "optimizer.rmsprop_decay": 0.99,
        "optimizer.max_gradient_norm": 80.0,
        "optimizer.options": {},
        **VALUED_BONUS,
        **POLICY_VALUE_NETWORK,
        "network.hidden_sizes": (),
        "frame_stack": 1,
        "network.lstm_size": 256,
        "network.head_sizes": (256, 256),
    }


def test_values_survive_yaml():
    changed = {
        "unroll_length": 5,
        "entropy_cost": 0.0,
        "lambda_": 0.9,
        "normalize_rewards": False,
        "reward_clip": 1.0,
        "optimizer.epsilon": 1e-8,
        "optimizer.max_gradient_norm": None,
        "network.core": "lstm",
        "network.head_sizes": (16, 8),
        "network.normalize_observations": False,
    }
    for settings in (ImpalaSettings(), from_values(ImpalaSettings, changed)):
        assert through_yaml(settings) == settings
    assert values_of(from_values(ImpalaSettings, changed)) == {**values_of(ImpalaSettings), **changed}


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("unroll_length", 0, "a whole number of at least 1"),
        ("batch_size", 0, "a whole number of at least 1"),
        ("updates_per_call", 0, "a whole number of at least 1"),
        ("queue_batches", 0, "a whole number of at least 1"),
        ("discount", -0.1, "a number from 0 to 1"),
        ("entropy_cost", -0.01, "a number of at least 0 or a schedule such as {schedule: linear, start: 1e-3}"),
        ("baseline_cost", float("inf"), "a number of at least 0"),
        ("clip_rho", 0.0, "a number above 0"),
        ("clip_c", float("nan"), "a number above 0"),
        ("clip_policy_gradient_rho", -1.0, "a number above 0"),
        ("lambda_", 1.5, "a number from 0 to 1"),
        ("reward_clip", 0.0, "a number above 0, a list of 2 numbers, such as [0.5, 1.0] or null"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(ImpalaSettings(), name, value, allowed)
