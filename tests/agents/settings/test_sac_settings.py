"""SAC's hyperparameters: all defaults, and their ranges."""

import pytest
from settings_checks import ACTOR_CRITIC_NETWORK, CRITICS, assert_refused, through_yaml, values_of

from callboard.agents.settings.sac_settings import SacSettings
from callboard.settings.nested_settings import from_values

OPTIMIZERS = ("actor_optimizer", "critic_optimizer", "temperature_optimizer")
ADAM = {
    "name": "adam",
    "learning_rate": 3e-4,
    "learning_rate_decay": False,
    "epsilon": 1e-8,
    "rmsprop_decay": 0.99,
    "max_gradient_norm": None,
    "options": {},
}


def test_the_defaults_are_those_of_the_documentation():
    assert values_of(SacSettings) == {
        "batch_size": 256,
        "accumulate": 1,
        "reward_scale": 1.0,
        "normalize_rewards": True,
        "normalization_discount": None,
        "reward_clip": None,
        "updates_per_call": None,
        "hold": 1,
        "discount": 0.99,
        "target_update_rate": 0.005,
        "target_update_period": 1,
        "policy_delay": 1,
        "temperature": 0.01,
        "target_entropy": None,
        **{f"{optimizer}.{name}": value for optimizer in OPTIMIZERS for name, value in ADAM.items()},
        "replay.size": 1_000_000,
        "replay.min_size": 1000,
        "replay.samples_per_insert": 256.0,
        "replay.error_buffer": None,
        "replay.sampled_together": None,
        "replay.demonstration_share": 0.0,
        "replay.demonstration_items": None,
        "replay.hindsight.goals": 0,
        "replay.hindsight.strategy": "future",
        "replay.hindsight.horizon": 1000,
        **ACTOR_CRITIC_NETWORK,
        **CRITICS,
        "crossq": False,
        "network.hidden_sizes": (256, 256),
        "network.activation": "relu",
        "network.normalize_observations": True,
        "action_limit": None,
        "frame_stack": 1,
    }


def test_the_defaults_make_one_learner_step_per_environment_step():
    assert SacSettings().replay.samples_per_insert == SacSettings().batch_size


def test_values_survive_yaml():
    changed = {
        "hold": 4,
        "target_update_rate": 1.0,
        "target_entropy": -3.5,
        "critic_optimizer.learning_rate": 1e-3,
        "temperature_optimizer.name": "rmsprop",
        "replay.error_buffer": 512.0,
        "network.activation": "elu",
    }
    for settings in (SacSettings(), from_values(SacSettings, changed)):
        assert through_yaml(settings) == settings
    assert values_of(from_values(SacSettings, changed)) == {**values_of(SacSettings), **changed}


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("batch_size", 0, "a whole number of at least 1"),
        ("updates_per_call", 0, "a whole number of at least 1 or null"),
        ("hold", 0, "a whole number of at least 1"),
        ("discount", 1.1, "a number from 0 to 1"),
        ("target_update_rate", 0.0, "a number above 0 and at most 1"),
        ("target_update_rate", 1.1, "a number above 0 and at most 1"),
        ("temperature", 0.0, "a number above 0"),
        ("target_entropy", float("inf"), "a number that is finite or null"),
        (
            "actor_optimizer.learning_rate",
            -1.0,
            "a number above 0 or a schedule such as {schedule: linear, start: 1e-3}",
        ),
        ("replay.min_size", 0, "a whole number of at least 1"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(SacSettings(), name, value, allowed)
