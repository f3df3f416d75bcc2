"""R2D2's hyperparameters: all defaults, and the ranges that `test_r2d2.py` does not try."""

import pytest
from settings_checks import BONUS, HEAD, NETWORK, assert_refused, through_yaml, values_of

from callboard.agents.schedules import Schedule
from callboard.agents.settings.r2d2_settings import R2D2Settings
from callboard.settings.nested_settings import from_values


def test_the_defaults_are_those_of_the_documentation():
    assert values_of(R2D2Settings) == {
        "burn_in": 20,
        "trace_length": 40,
        "period": 20,
        "n_step": 5,
        "batch_size": 32,
        "accumulate": 1,
        "reward_scale": 1.0,
        "normalize_rewards": True,
        "normalization_discount": None,
        "updates_per_call": 1,
        "priority_eta": 0.9,
        "discount": 0.99,
        "epsilon": 0.4,
        "epsilon_alpha": 7.0,
        "evaluation_epsilon": 0.0,
        "target_update_period": 100,
        "rescale_values": True,
        "reward_clip": None,
        "frame_stack": 1,
        "optimizer.name": "adam",
        "optimizer.learning_rate": 1e-3,
        "optimizer.learning_rate_decay": True,
        "optimizer.epsilon": 1e-3,
        "optimizer.rmsprop_decay": 0.99,
        "optimizer.max_gradient_norm": 40.0,
        "optimizer.options": {},
        "replay.size": 20_000,
        "replay.min_size": 200,
        "replay.samples_per_insert": 32.0,
        "replay.error_buffer": None,
        "replay.sampled_together": None,
        "replay.demonstration_share": 0.0,
        "replay.demonstration_items": None,
        "replay.hindsight.goals": 0,
        "replay.hindsight.strategy": "future",
        "replay.hindsight.horizon": 1000,
        "replay.priority_exponent": 0.9,
        "replay.importance_exponent": 0.6,
        **BONUS,
        "bonus.spread": False,
        **NETWORK,
        "network.hidden_sizes": (128, 128),
        "network.activation": "relu",
        "network.normalize_observations": True,
        "network.core_options": {},
        **HEAD,
        "network.dueling": True,
        "network.stream_size": 128,
        "network.core": "lstm",
        "network.lstm_size": 128,
        "network.previous_inputs": True,
    }


def test_values_survive_yaml():
    changed = {
        "burn_in": 0,
        "rescale_values": False,
        "normalize_rewards": False,
        "reward_clip": 1.0,
        "frame_stack": 4,
        "optimizer.max_gradient_norm": None,
        "replay.samples_per_insert": 0.75,
        "network.core": "none",
        "network.previous_inputs": False,
    }
    for settings in (R2D2Settings(), from_values(R2D2Settings, changed)):
        assert through_yaml(settings) == settings
    assert values_of(from_values(R2D2Settings, changed)) == {**values_of(R2D2Settings), **changed}


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("n_step", 0, "a whole number of at least 1"),
        ("batch_size", 0, "a whole number of at least 1"),
        ("updates_per_call", 0, "a whole number of at least 1"),
        ("discount", -0.1, "a number from 0 to 1"),
        ("epsilon", 1.1, "a number from 0 to 1 or a schedule such as {schedule: linear, start: 1e-3}"),
        ("evaluation_epsilon", float("nan"), "a number from 0 to 1"),
        ("frame_stack", 0, "a whole number of at least 1"),
        ("replay.importance_exponent", 1.5, f"a number from 0 to 1 or {Schedule.description}"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(R2D2Settings(), name, value, allowed)
