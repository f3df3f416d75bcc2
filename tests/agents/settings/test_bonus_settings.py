"""Settings of exploration bonuses: their ranges, and combinations that are refused in one line."""

import pytest
from dm_env import specs as dm_specs
from settings_checks import assert_refused, through_yaml
from small_worlds import layout_of

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.agents.r2d2 import R2D2
from callboard.agents.registry import agent_settings
from callboard.agents.settings.apex_settings import ApexSettings
from callboard.agents.settings.ppo_settings import PpoSettings
from callboard.errors import CallboardError
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(dm_specs.Array((2,), "float32"), dm_specs.DiscreteArray(3))


def test_values_survive_yaml():
    changed = {"bonus.name": "icm", "bonus.weight": 0.1, "bonus.hidden_sizes": (8, 8), "bonus.discount": 0.9}
    for settings in (PpoSettings(), from_values(PpoSettings, changed)):
        assert through_yaml(settings) == settings


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("bonus.weight", 0.0, "a number above 0"),
        ("bonus.learning_rate", -1.0, "a number above 0"),
        ("bonus.features", 0, "a whole number of at least 1"),
        ("bonus.forward_weight", 1.0, "a number above 0 and below 1"),
        ("bonus.discount", 1.5, "a number from 0 to 1"),
    ],
)
def test_ranges(name, value, allowed):
    assert_refused(PpoSettings(), name, value, allowed)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"bonus.weight": 0.1}, "bonus.weight has no effect without a bonus: set bonus.name to rnd or icm"),
        ({"bonus.discount": 0.9}, "bonus.discount has no effect without a bonus"),
        ({"bonus.name": "rnd", "bonus.forward_weight": 0.5}, "bonus.forward_weight is for icm"),
        ({"bonus.name": "rnd", "bonus.discount": 1.0}, "bonus.discount must be below 1"),
    ],
)
def test_combinations_without_a_meaning_are_refused(changed, message):
    with pytest.raises(CallboardError, match=message):
        from_values(Ppo, changed)


def test_a_spread_of_no_bonus_is_refused():
    with pytest.raises(CallboardError, match="bonus.spread has no effect without a bonus"):
        from_values(Apex, {"bonus.spread": True})


def test_settings_of_runs_of_earlier_versions_are_read():
    assert from_values(Apex, {"bonus.learning_rate": 3e-4}).bonus.name == "none"
    with pytest.raises(CallboardError, match="bonus.learning_rate has no effect without a bonus"):
        from_values(Apex, {"bonus.learning_rate": 2e-4})


def test_another_bonus_is_unknown():
    with pytest.raises(CallboardError, match="bonus.name must be one of none, rnd, icm|agent.bonus.name"):
        from_values(Ppo, {"bonus.name": "count"})


@pytest.mark.parametrize("agent", [Apex, R2D2])
def test_bonuses_in_values_need_a_discount(agent):
    made = from_values(agent, {"bonus.name": "rnd", "discount": 1.0})
    with pytest.raises(CallboardError, match="^agent.bonus is divided .*: set agent.discount below 1$"):
        made.check(layout_of(SPEC, max_steps=1_000_000))


def test_a_range_of_returns_without_bonuses_is_refused():
    changed = {"bonus.name": "icm", "distribution": "categorical"}
    with pytest.raises(CallboardError, match="^the range of agent.distribution categorical .* quantile$"):
        from_values(Apex, changed).check(layout_of(SPEC))
    from_values(Apex, {**changed, "value_min": -10.0, "value_max": 10.0}).check(layout_of(SPEC))


def test_agents_without_values_of_their_own_have_no_discount_of_bonuses():
    assert "discount" not in vars(ApexSettings().bonus) and "discount" in vars(PpoSettings().bonus)
    assert not hasattr(agent_settings("a3c"), "bonus") and not hasattr(agent_settings("pqn"), "bonus")
