"""TD3's hyperparameters: all defaults, and their ranges."""

import pytest
from settings_checks import ACTOR_CRITIC_NETWORK, CRITICS, assert_refused, through_yaml, values_of

from callboard.agents.schedules import Schedule
from callboard.agents.settings.td3_settings import TD3Settings
from callboard.settings.nested_settings import from_values

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
    assert values_of(TD3Settings) == {
        "batch_size": 256,
        "reward_scale": 1.0,
        "normalize_rewards": True,
        "normalization_discount": None,
        "accumulate": 1,
        "reward_clip": None,
        "updates_per_call": None,
        "discount": 0.99,
        "exploration_noise": 0.1,
        "target_noise": 0.2,
        "target_noise_clip": 0.5,
        "policy_delay": 2,
        "target_update_rate": 0.005,
        **{f"{part}_optimizer.{name}": value for part in ("actor", "critic") for name, value in ADAM.items()},
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
        "network.hidden_sizes": (256, 256),
        "network.activation": "relu",
        "network.normalize_observations": True,
        "action_limit": None,
        "frame_stack": 1,
    }


def test_the_defaults_make_one_learner_step_per_environment_step():
    assert TD3Settings().replay.samples_per_insert == TD3Settings().batch_size


def test_values_survive_yaml():
    changed = {"policy_delay": 3, "target_noise": 0.0, "actor_optimizer.learning_rate": 1e-4}
    for settings in (TD3Settings(), from_values(TD3Settings, changed)):
        assert through_yaml(settings) == settings
    assert values_of(from_values(TD3Settings, changed)) == {**values_of(TD3Settings), **changed}


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("batch_size", 0, "a whole number of at least 1"),
        ("discount", 1.1, "a number from 0 to 1"),
        ("exploration_noise", -0.1, "a number of at least 0"),
        ("target_noise", -0.1, "a number of at least 0"),
        ("target_noise_clip", float("nan"), "a number of at least 0"),
        ("policy_delay", 0, "a whole number of at least 1"),
        ("target_update_rate", 0.0, "a number above 0 and at most 1"),
        ("actor_optimizer.learning_rate", -1.0, f"a number above 0 or {Schedule.description}"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(TD3Settings(), name, value, allowed)
