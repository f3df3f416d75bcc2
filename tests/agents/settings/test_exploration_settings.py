"""Settings of exploration: the agents that have them, their ranges, and their description."""

import dataclasses

import pytest
from settings_checks import assert_refused

from callboard.agents.schedules import Schedule
from callboard.agents.settings.apex_settings import ApexSettings
from callboard.agents.settings.r2d2_settings import R2D2Settings
from callboard.agents.settings.shared_settings import ExplorationSettings
from callboard.settings.nested_settings import declared_fields


@pytest.mark.parametrize("kind", [ApexSettings, R2D2Settings])
def test_agents_have_the_fields_with_their_description(kind):
    fields = declared_fields(kind)
    for field in dataclasses.fields(ExplorationSettings):
        assert fields[field.name] == declared_fields(ExplorationSettings)[field.name]
        assert fields[field.name].text


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("epsilon", 1.1, f"a number from 0 to 1 or {Schedule.description}"),
        ("epsilon_alpha", -1.0, "a number of at least 0"),
        ("evaluation_epsilon", float("nan"), "a number from 0 to 1"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(ExplorationSettings(), name, value, allowed)
