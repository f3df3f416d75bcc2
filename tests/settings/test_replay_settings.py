"""Settings of replay: defaults and ranges; tests/replay/servers/test_tables.py checks what works together."""

import dataclasses

import pytest
from settings_checks import assert_refused, through_yaml, values_of

from callboard.settings.replay_settings import ReplaySettings

UNIFORM = ReplaySettings(size=500, min_size=20, samples_per_insert=0.5)


def test_size_minimum_and_ratio_have_no_defaults():
    assert values_of(UNIFORM) == {
        "size": 500,
        "min_size": 20,
        "samples_per_insert": 0.5,
        "error_buffer": None,
        "sampled_together": None,
        "demonstration_share": 0.0,
        "demonstration_items": None,
        "hindsight.goals": 0,
        "hindsight.strategy": "future",
        "hindsight.horizon": 1000,
    }
    with pytest.raises(TypeError, match="'size', 'min_size', and 'samples_per_insert'"):
        ReplaySettings()


def test_values_survive_yaml():
    for settings in (UNIFORM, dataclasses.replace(UNIFORM, error_buffer=64.0)):
        assert through_yaml(settings) == settings


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("size", 0, "a whole number of at least 1"),
        ("min_size", 0, "a whole number of at least 1"),
        ("samples_per_insert", 0.0, "a number above 0"),
        ("samples_per_insert", float("inf"), "a number above 0"),
        ("error_buffer", 0.0, "a number above 0 or null"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(UNIFORM, name, value, allowed)


def test_the_learner_steps_of_a_run_follow_from_what_it_inserts():
    # Of 1,000 items, each after the first 20 is learned from half a time, in batches of 7.
    assert UNIFORM.learner_steps(1000, 7) == 70
    assert UNIFORM.learner_steps(10, 7) == 0
