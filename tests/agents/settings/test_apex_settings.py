"""Ape-X's hyperparameters: all defaults, and the ranges that `test_apex.py` does not try."""

import pytest
from settings_checks import BONUS, HEAD, NETWORK, assert_refused, through_yaml, values_of

from callboard.agents.settings.apex_settings import ApexSettings
from callboard.settings.nested_settings import from_values


def test_the_defaults_are_those_of_the_documentation():
    assert values_of(ApexSettings) == {
        "n_step": 3,
        "batch_size": 128,
        "accumulate": 1,
        "reward_scale": 1.0,
        "normalize_rewards": True,
        "normalization_discount": None,
        "updates_per_call": None,
        "discount": 0.99,
        "epsilon": 0.4,
        "epsilon_alpha": 7.0,
        "evaluation_epsilon": 0.0,
        "target_update_period": 200,
        "reward_clip": None,
        "huber": 1.0,
        "distribution": "none",
        "atoms": 51,
        "value_min": None,
        "value_max": None,
        "munchausen": 0.0,
        "munchausen_temperature": 0.03,
        "munchausen_clip": 1.0,
        "noisy": False,
        "noisy_sigma": 0.5,
        "frame_stack": 1,
        "optimizer.name": "adam",
        "optimizer.learning_rate": 5e-4,
        "optimizer.learning_rate_decay": True,
        "optimizer.epsilon": 1e-5,
        "optimizer.rmsprop_decay": 0.95,
        "optimizer.max_gradient_norm": 40.0,
        "optimizer.options": {},
        "replay.size": 200_000,
        "replay.min_size": 5000,
        "replay.samples_per_insert": 32.0,
        "replay.error_buffer": None,
        "replay.sampled_together": None,
        "replay.demonstration_share": 0.0,
        "replay.demonstration_items": None,
        "replay.hindsight.goals": 0,
        "replay.hindsight.strategy": "future",
        "replay.hindsight.horizon": 1000,
        "replay.priority_exponent": 0.6,
        "replay.importance_exponent": 0.4,
        **BONUS,
        "bonus.spread": False,
        **NETWORK,
        "network.hidden_sizes": (256, 256),
        "network.activation": "relu",
        "network.normalize_observations": True,
        **HEAD,
        "network.dueling": True,
        "network.stream_size": 128,
    }


def test_values_survive_yaml():
    changed = {
        "n_step": 5,
        "epsilon_alpha": 0.0,
        "normalize_rewards": False,
        "reward_clip": 1.0,
        "huber": None,
        "distribution": "quantile",
        "atoms": 200,
        "optimizer.name": "rmsprop",
        "optimizer.learning_rate": 6.25e-5,
        "replay.error_buffer": 1000.0,
        "network.hidden_sizes": (),
        "network.dueling": False,
    }
    for settings in (ApexSettings(), from_values(ApexSettings, changed)):
        assert through_yaml(settings) == settings
    assert values_of(from_values(ApexSettings, changed)) == {**values_of(ApexSettings), **changed}


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("batch_size", 0, "a whole number of at least 1"),
        ("updates_per_call", 0, "a whole number of at least 1 or null"),
        ("discount", 1.01, "a number from 0 to 1"),
        ("epsilon", -0.1, "a number from 0 to 1 or a schedule such as {schedule: linear, start: 1e-3}"),
        ("evaluation_epsilon", 2.0, "a number from 0 to 1"),
        ("huber", 0.0, "a number above 0 or null"),
        ("frame_stack", 0, "a whole number of at least 1"),
        ("replay.priority_exponent", -0.5, "a number from 0 to 1"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(ApexSettings(), name, value, allowed)
