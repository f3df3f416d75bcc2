"""Settings of optimizers: what agents must choose, and what is allowed."""

import dataclasses
import sys

import pytest
from settings_checks import assert_refused, through_yaml, values_of

from callboard.agents.schedules import Schedule
from callboard.agents.settings.impala_settings import ImpalaSettings
from callboard.agents.settings.optimizer_settings import OptimizerSettings, check_own_optimizers
from callboard.errors import CallboardError
from callboard.settings.setting_types import check_ranges

SETTINGS = OptimizerSettings(learning_rate=1e-3, epsilon=1e-8, max_gradient_norm=None)


def test_the_defaults_that_agents_share():
    assert values_of(SETTINGS) == {
        "name": "adam",
        "learning_rate": 1e-3,
        "learning_rate_decay": True,
        "epsilon": 1e-8,
        "rmsprop_decay": 0.99,
        "max_gradient_norm": None,
        "options": {},
    }


@pytest.mark.parametrize("missing", ["learning_rate", "epsilon", "max_gradient_norm"])
def test_each_agent_chooses_what_depends_on_its_loss(missing):
    chosen = {"learning_rate": 1e-3, "epsilon": 1e-8, "max_gradient_norm": 1.0}
    del chosen[missing]
    with pytest.raises(TypeError, match=missing):
        OptimizerSettings(**chosen)


def test_values_survive_yaml():
    for settings in (SETTINGS, OptimizerSettings(name="rmsprop", learning_rate=1, epsilon=1e-10, max_gradient_norm=40)):
        assert through_yaml(settings) == settings


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("learning_rate", 0.0, f"a number above 0 or {Schedule.description}"),
        ("learning_rate", float("inf"), f"a number above 0 or {Schedule.description}"),
        ("epsilon", 0.0, "a number above 0"),
        ("rmsprop_decay", 1.1, "a number from 0 to 1"),
        ("max_gradient_norm", 0.0, "a number above 0 or null"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value, allowed):
    assert_refused(SETTINGS, name, value, allowed)


def test_an_unknown_optimizer_or_option_is_refused():
    check_ranges(dataclasses.replace(SETTINGS, name="adamw", options={"weight_decay": 1e-4}), "agent.optimizer.")
    with pytest.raises(CallboardError, match="^agent.optimizer: unknown optimizer 'sdg'; did you mean 'sgd'?"):
        check_ranges(dataclasses.replace(SETTINGS, name="sdg"), "agent.optimizer.")
    with pytest.raises(CallboardError, match="^agent.optimizer: unknown option 'momentun' of the optimizer 'sgd'; did"):
        check_ranges(dataclasses.replace(SETTINGS, name="sgd", options={"momentun": 0.9}), "agent.optimizer.")


def make_my_optimizer(learning_rate, momentum):
    return learning_rate, momentum


@pytest.mark.parametrize(
    "name, options, message",
    [
        (":x", {}, "cannot be imported"),
        ("my_optimizers:make_my_optimzer", {}, "did you mean 'make_my_optimizer'?"),
        ("my_optimizers:SETTINGS", {}, "is not a function but of type OptimizerSettings"),
        ("my_optimizers:make_my_optimizer", {"speed": 1}, "agent.optimizer.options do not fit my_optimizers:make"),
    ],
)
def test_an_optimizer_of_the_user_s_own_is_checked_before_a_run(monkeypatch, name, options, message):
    monkeypatch.setitem(sys.modules, "my_optimizers", sys.modules[__name__])

    def check(name, options):
        optimizer = dataclasses.replace(SETTINGS, name=name, options=options)
        check_own_optimizers(ImpalaSettings(optimizer=optimizer))

    check("my_optimizers:make_my_optimizer", {"momentum": 0.5})
    with pytest.raises(CallboardError, match=message) as caught:
        check(name, options)
    assert "\n" not in str(caught.value)
