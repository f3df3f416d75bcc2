"""APPO's hyperparameters: IMPALA's, and one more."""

from settings_checks import assert_refused, through_yaml, values_of

from callboard.agents.schedules import Schedule
from callboard.agents.settings.impala_settings import AppoSettings, ImpalaSettings
from callboard.settings.nested_settings import from_values


def test_the_defaults_are_impalas_and_those_of_the_documentation():
    assert values_of(AppoSettings) == {**values_of(ImpalaSettings), "clip": 0.2}


def test_values_survive_yaml():
    changed = from_values(AppoSettings, {"clip": 0.4, "lambda_": 0.9})
    assert through_yaml(changed) == changed and changed.clip == 0.4


def test_a_value_out_of_range_is_refused_by_name():
    assert_refused(AppoSettings(), "clip", 0.0, f"a number above 0 or {Schedule.description}")
