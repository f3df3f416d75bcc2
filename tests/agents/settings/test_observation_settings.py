"""Settings of observations: the agents that have them, and what is refused."""

import pytest
from settings_checks import assert_refused

from callboard.agents.agent_names import AGENTS
from callboard.agents.registry import agent_settings
from callboard.agents.settings.shared_settings import ObservationSettings
from callboard.settings.nested_settings import declared_fields


@pytest.mark.parametrize("name", sorted({*AGENTS} - {"qmix", "vdn"}))
def test_all_agents_but_those_of_teams_have_them_with_a_description(name):
    fields = declared_fields(agent_settings(name))
    for setting, field in declared_fields(ObservationSettings).items():
        assert fields[setting].text and fields[setting].default == (3 if name == "drq" else field.default)


def test_a_stack_has_a_frame():
    assert_refused(ObservationSettings(), "frame_stack", 0, "a whole number of at least 1")
