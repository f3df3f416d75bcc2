"""D4PG's hyperparameters: all defaults, and their ranges."""

import pytest
from settings_checks import ACTOR_CRITIC_NETWORK, assert_refused, through_yaml, values_of

from callboard.agents.settings.d4pg_settings import D4PGSettings
from callboard.settings.nested_settings import from_values

ADAM = {
    "name": "adam",
    "learning_rate": 1e-4,
    "learning_rate_decay": False,
    "epsilon": 1e-8,
    "rmsprop_decay": 0.99,
    "max_gradient_norm": None,
    "options": {},
}


def test_the_defaults_are_those_of_the_documentation():
    assert values_of(D4PGSettings) == {
        "n_step": 5,
        "batch_size": 256,
        "reward_scale": 1.0,
        "normalize_rewards": False,
        "normalization_discount": None,
        "accumulate": 1,
        "reward_clip": None,
        "updates_per_call": 1,
        "discount": 0.99,
        "atoms": 51,
        "value_min": None,
        "value_max": None,
        "exploration_noise": 0.3,
        "target_update_period": 100,
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
        "network.hidden_sizes": (400, 300),
        "network.activation": "relu",
        "network.normalize_observations": True,
        "action_limit": None,
        "frame_stack": 1,
    }


def test_values_survive_yaml():
    changed = from_values(D4PGSettings, {"atoms": 11, "value_min": 0.0, "actor_optimizer.learning_rate": 1e-3})
    assert through_yaml(changed) == changed and changed.atoms == 11


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("n_step", 0, "a whole number of at least 1"),
        ("value_min", float("-inf"), "a number that is finite or null"),
        ("exploration_noise", -0.1, "a number of at least 0"),
        ("target_update_period", 0, "a whole number of at least 1"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(D4PGSettings(), name, value, allowed)
