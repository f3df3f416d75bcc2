"""Settings of prioritized replay: defaults, ranges, and the exponent that may be a schedule."""

import dataclasses

import pytest
from settings_checks import assert_refused, through_yaml

from callboard.agents.schedules import Schedule
from callboard.agents.settings.shared_settings import PrioritizedReplaySettings
from callboard.errors import CallboardError
from callboard.settings.setting_types import check_ranges

PRIORITIZED = PrioritizedReplaySettings(
    size=500, min_size=20, samples_per_insert=0.5, error_buffer=64.0, priority_exponent=0.6, importance_exponent=0.4
)


def test_the_exponents_have_no_defaults():
    with pytest.raises(TypeError, match="'priority_exponent' and 'importance_exponent'"):
        PrioritizedReplaySettings(size=500, min_size=20, samples_per_insert=0.5)


def test_values_survive_yaml():
    assert through_yaml(PRIORITIZED) == PRIORITIZED


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("priority_exponent", 1.1, "a number from 0 to 1"),
        ("importance_exponent", -0.1, f"a number from 0 to 1 or {Schedule.description}"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(PRIORITIZED, name, value, allowed)


def test_the_importance_exponent_may_be_a_schedule_within_its_range():
    schedule = Schedule(start=0.4, end=1.0)
    assert dataclasses.replace(PRIORITIZED, importance_exponent=schedule).importance_exponent == schedule
    with pytest.raises(CallboardError, match="^importance_exponent must be a number from 0 to 1 or a schedule such as"):
        check_ranges(dataclasses.replace(PRIORITIZED, importance_exponent=Schedule(start=0.4, end=1.5)))
