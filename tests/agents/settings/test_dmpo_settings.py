"""DMPO's hyperparameters: all defaults, and their ranges."""

import pytest
from settings_checks import assert_refused, through_yaml, values_of

from callboard.agents.settings.d4pg_settings import D4PGSettings, DMPOSettings
from callboard.settings.nested_settings import from_values


def test_the_defaults_are_those_of_the_documentation():
    shared = values_of(D4PGSettings)
    del shared["exploration_noise"]
    rates = {"actor": 1e-4, "critic": 1e-4, "dual": 1e-2}
    for part, rate in rates.items():
        of_part = {name: value for name, value in shared.items() if name.startswith("actor_optimizer.")}
        for name, value in of_part.items():
            shared[name.replace("actor", part)] = value
        shared |= {f"{part}_optimizer.learning_rate": rate, f"{part}_optimizer.max_gradient_norm": 40.0}
    assert values_of(DMPOSettings) == {
        **shared,
        "dual_optimizer.max_gradient_norm": None,
        "normalize_rewards": True,
        "action_samples": 20,
        "epsilon": 0.1,
        "epsilon_mean": 0.0025,
        "epsilon_stddev": 1e-6,
        "action_penalization": True,
        "epsilon_penalty": 0.001,
        "initial_temperature": 1.0,
        "initial_alpha_mean": 10.0,
        "initial_alpha_stddev": 1000.0,
        "replay.min_size": 1000,
        "replay.samples_per_insert": 32.0,
        "network.hidden_sizes": (256, 256, 256),
        "network.activation": "elu",
        "network.layer_norm": True,
    }


def test_values_survive_yaml():
    changed = from_values(DMPOSettings, {"action_samples": 5, "epsilon": 0.2, "dual_optimizer.learning_rate": 1e-3})
    assert through_yaml(changed) == changed and changed.epsilon == 0.2


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("action_samples", 0, "a whole number of at least 1"),
        ("epsilon", 0.0, "a number above 0"),
        ("epsilon_stddev", -1.0, "a number above 0"),
        ("initial_temperature", float("inf"), "a number that is finite"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(DMPOSettings(), name, value, allowed)
