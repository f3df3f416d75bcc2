"""DrQ's hyperparameters: SAC's, with other defaults, and those of augmentation."""

from settings_checks import assert_refused, through_yaml, values_of

from callboard.agents.settings.sac_settings import DrQSettings, SacSettings
from callboard.settings.nested_settings import from_values


def test_the_defaults_are_those_of_the_documentation():
    rates = {f"{part}_optimizer.learning_rate": 1e-3 for part in ("actor", "critic", "temperature")}
    assert values_of(DrQSettings) == {
        **values_of(SacSettings),
        **rates,
        "normalize_rewards": False,
        "shift": 4,
        "augmentations": 2,
        "batch_size": 512,
        "target_update_rate": 0.01,
        "target_update_period": 2,
        "policy_delay": 2,
        "temperature": 0.1,
        "action_limit": None,
        "frame_stack": 3,
        "replay.size": 100_000,
        "replay.min_size": 1000,
        "replay.samples_per_insert": 512.0,
        "network.hidden_sizes": (1024, 1024),
    }


def test_values_survive_yaml():
    changed = from_values(DrQSettings, {"shift": 0, "augmentations": 1, "network.filters": ((8, 3, 2),)})
    assert changed.shift == 0 and changed.network.filters == ((8, 3, 2),)
    plain = from_values(DrQSettings, {"shift": 2})
    assert through_yaml(plain) == plain


def test_values_out_of_range_are_refused_by_name():
    assert_refused(DrQSettings(), "shift", -1, "a whole number of at least 0")
    assert_refused(DrQSettings(), "augmentations", 0, "a whole number of at least 1")
