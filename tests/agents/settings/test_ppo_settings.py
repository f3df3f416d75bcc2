"""PPO's hyperparameters: all defaults, and the ranges that `test_ppo.py` does not try."""

import pytest
from settings_checks import POLICY_VALUE_NETWORK, VALUED_BONUS, assert_refused, through_yaml, values_of

from callboard.agents.settings.ppo_settings import PpoSettings
from callboard.settings.nested_settings import from_values


def test_the_defaults_are_those_of_the_documentation():
    assert values_of(PpoSettings) == {
        "unroll_length": 64,
        "batch_size": 32,
        "accumulate": 1,
        "reward_scale": 1.0,
        "reward_clip": None,
        "epochs": 10,
        "minibatches": 32,
        "max_policy_lag": 0,
        "discount": 0.99,
        "gae_lambda": 0.95,
        "clip": 0.2,
        "clip_decay": False,
        "clip_value": False,
        "entropy_cost": 0.0,
        "value_cost": 0.5,
        "value_learning_rate_scale": 1.0,
        "normalize_advantages": True,
        "normalize_rewards": True,
        "normalization_discount": None,
        "target_kl": None,
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
        "network.head_sizes": (64, 64),
    }


def test_minibatches_of_the_defaults_have_the_64_transitions_of_the_paper():
    defaults = PpoSettings()
    assert defaults.unroll_length * defaults.batch_size == 2048
    assert defaults.unroll_length * defaults.batch_size / defaults.minibatches == 64


def test_values_survive_yaml():
    changed = {
        "epochs": 3,
        "max_policy_lag": 2,
        "clip_decay": True,
        "target_kl": 0.01,
        "initial_log_std": -10.0,
        "std_from_observation": True,
        "optimizer.learning_rate_decay": False,
        "network.hidden_sizes": (32,),
        "network.head_sizes": (),
    }
    for settings in (PpoSettings(), from_values(PpoSettings, changed)):
        assert through_yaml(settings) == settings
    assert values_of(from_values(PpoSettings, changed)) == {**values_of(PpoSettings), **changed}


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("unroll_length", 0, "a whole number of at least 1"),
        ("batch_size", 0, "a whole number of at least 1"),
        ("minibatches", 0, "a whole number of at least 1"),
        ("discount", 1.1, "a number from 0 to 1"),
        ("entropy_cost", -0.01, "a number of at least 0 or a schedule such as {schedule: linear, start: 1e-3}"),
        ("value_cost", float("nan"), "a number of at least 0"),
        ("initial_log_std", -10.5, "a number from -10 to 2"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(PpoSettings(), name, value, allowed)
