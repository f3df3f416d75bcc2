"""Settings of Gaussian policies: their ranges, and the agents that have them."""

from settings_checks import assert_refused

from callboard.agents.registry import agent_settings
from callboard.agents.settings.shared_settings import GaussianPolicySettings
from callboard.settings.nested_settings import declared_fields


def test_agents_with_policies_over_any_action_have_them_with_a_description():
    for name in ("impala", "appo", "ppo", "a2c"):
        fields = declared_fields(agent_settings(name))
        for setting, field in declared_fields(GaussianPolicySettings).items():
            assert fields[setting].text and fields[setting].default == field.default


def test_ranges():
    assert_refused(GaussianPolicySettings(), "initial_log_std", 3.0, "a number from -10 to 2")
