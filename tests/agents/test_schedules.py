"""Schedules at their corners, and which of them are refused."""

import numpy as np
import pytest
from small_worlds import SPEC, layout_of

from callboard.agents.schedules import Schedule, check_schedules, schedules_of
from callboard.agents.settings.apex_settings import ApexSettings
from callboard.agents.settings.impala_settings import ImpalaSettings
from callboard.errors import CallboardError
from callboard.settings.nested_settings import declared_fields, from_values, with_values
from callboard.settings.setting_types import check_ranges, converted

RATE = declared_fields(ImpalaSettings)["optimizer.learning_rate"].hint


def values(schedule, steps, run_steps=1000):
    return [schedule.at(step, run_steps) for step in steps]


def test_a_linear_schedule_falls_to_its_end_and_stays_there():
    schedule = Schedule(start=0.5, end=0.1, steps=100)
    np.testing.assert_allclose(values(schedule, [0, 25, 50, 100, 101, 10**9]), [0.5, 0.4, 0.3, 0.1, 0.1, 0.1])


def test_a_schedule_without_steps_is_as_long_as_the_run():
    np.testing.assert_allclose(values(Schedule(start=0.0, end=1.0), [0, 250, 1000, 2000]), [0.0, 0.25, 1.0, 1.0])


def test_a_cosine_schedule_is_half_a_period():
    steps = np.arange(0, 130, 10)
    expected = [0.1 + 0.4 * (1 + np.cos(np.pi * min(step, 100) / 100)) / 2 for step in steps]
    np.testing.assert_allclose(values(Schedule(schedule="cosine", start=0.5, end=0.1, steps=100), steps), expected)


def test_a_piecewise_schedule_changes_at_its_boundaries():
    schedule = Schedule(schedule="piecewise", values=(3.0, 2.0, 1.0), boundaries=(10, 20))
    assert values(schedule, [0, 9, 10, 19, 20, 10**9]) == [3.0, 3.0, 2.0, 2.0, 1.0, 1.0]


def test_a_constant_schedule_does_not_change():
    assert values(Schedule(schedule="constant", start=0.25), [0, 10**9]) == [0.25, 0.25]


def test_a_number_or_a_mapping_sets_it():
    assert converted("rate", "3e-4", RATE) == 3e-4
    schedule = converted("rate", {"schedule": "cosine", "start": "1e-3", "steps": 1_000, "by": "learner_steps"}, RATE)
    assert schedule == Schedule(schedule="cosine", start=1e-3, steps=1000, by="learner_steps")


def test_an_agent_s_schedules_are_values_and_not_groups_of_settings():
    schedule = Schedule(start=1.0)
    agent = from_values(ImpalaSettings, {"entropy_cost": schedule})
    assert schedules_of(agent) == {"entropy_cost": schedule}
    assert set(declared_fields(agent)) == set(declared_fields(ImpalaSettings))


@pytest.mark.parametrize(
    "value, message",
    [
        ({"schedule": "linear"}, "rate: a linear schedule needs start, such as {schedule: linear, start: 1e-3}"),
        ({"start": 1, "values": [1]}, "rate: a linear schedule has start and end; values and boundaries are those of"),
        ({"schedule": "piecewise", "start": 1}, "rate: a piecewise schedule has values and boundaries, not start"),
        ({"schedule": "piecewise", "values": [1], "boundaries": [1]}, "one value more than boundaries, not 1 values"),
        ({"schedule": "piecewise", "values": [1, 2, 3], "boundaries": [2, 2]}, "must increase, not be .2, 2."),
        ({"start": -1}, "rate.start must be a number of at least 0 or null, not -1"),
        ({"start": 1, "strt": 1}, "unknown key 'rate.strt'; did you mean 'rate.start'?"),
        ({"schedule": "lin", "start": 1}, "rate.schedule must be constant, linear, cosine or piecewise, not 'lin'"),
        (0, "rate must be a number above 0 or a schedule such as {schedule: linear, start: 1e-3}, not 0"),
        ("linear", "rate must be a number above 0 or a schedule such as .*, not 'linear'"),
    ],
)
def test_a_wrong_schedule_is_refused_in_one_line(value, message):
    with pytest.raises(CallboardError, match=message) as caught:
        converted("rate", value, RATE)
    assert "\n" not in str(caught.value)


def test_the_numbers_of_a_schedule_are_in_the_range_of_the_setting():
    check_ranges(ApexSettings(epsilon=Schedule(start=1.0)), "agent.")
    for schedule in (Schedule(start=2.0), Schedule(schedule="piecewise", values=(0.5, 3.0), boundaries=(1,))):
        with pytest.raises(CallboardError, match="agent.epsilon must be a number from 0 to 1 or a schedule"):
            check_ranges(ApexSettings(epsilon=schedule), "agent.")
    with pytest.raises(CallboardError, match="agent.epsilon: a linear schedule needs start"):
        check_ranges(ApexSettings(epsilon=Schedule()), "agent.")


def test_a_schedule_fits_the_run():
    layout = layout_of(SPEC)

    def check(schedule, learners=1, max_learner_steps=None):
        agent = with_values(ImpalaSettings(), {"entropy_cost": schedule})
        check_schedules(agent, layout._replace(learners=learners), max_learner_steps)

    check(Schedule(start=1.0))
    check(Schedule(start=1.0, by="learner_steps"), learners=2, max_learner_steps=10)
    check(Schedule(start=1.0, by="learner_steps", steps=10), learners=2)
    with pytest.raises(CallboardError, match="agent.entropy_cost .* without an end: set its steps, or max_learner_st"):
        check(Schedule(start=1.0, by="learner_steps"))
    with pytest.raises(CallboardError, match="agent.entropy_cost .* 2 learners .* set its by to learner_steps"):
        check(Schedule(start=1.0), learners=2)
