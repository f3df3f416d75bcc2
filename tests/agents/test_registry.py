"""Agents by name."""

import dataclasses
import pathlib
import re

import pytest
from agent_cases import AGENT_CASES

from callboard.agents import Agent, agent_class
from callboard.agents.agent_names import AGENTS, agent_name
from callboard.agents.apex import Apex
from callboard.agents.impala import Impala
from callboard.agents.learning.transition_agent import TransitionAgent
from callboard.agents.registry import agent_settings
from callboard.errors import CallboardError
from callboard.settings.nested_settings import declared_fields

MINE = """
from callboard.agents.impala import Impala

class Mine(Impala):
    pass

class Other:
    pass

an_agent = Impala()
"""


WINDOWS = (Apex.make_replay, TransitionAgent.make_replay)
GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guides" / "hindsight.md"


def test_the_guide_names_the_agents_that_take_hindsight():
    names = re.search(r"windows of transitions: (.*?)\. Rewards", GUIDE.read_text(), re.DOTALL)[1]
    assert set(re.findall(r"\.\./(\w+)\.md", names)) == {
        name for name in AGENTS if agent_class(name).make_replay in WINDOWS
    }


@pytest.fixture
def user_package(tmp_path, monkeypatch):
    """A package of the user's, where the user stands."""
    package = tmp_path / "someones_agents"
    package.mkdir()
    (package / "good.py").write_text(MINE)
    (package / "broken.py").write_text("import no_such_package_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", AGENTS)
def test_every_name_is_of_an_agent_that_can_be_made_without_arguments(name):
    found = agent_class(name)
    assert issubclass(found, Agent) and dataclasses.is_dataclass(found)
    assert agent_name(found()) == name
    assert declared_fields(found) == declared_fields(agent_settings(name))


def test_every_agent_is_in_the_table_of_the_tests():
    assert sorted(case.name for case in AGENT_CASES) == sorted(AGENTS)


def test_impala_is_found_by_name_and_by_path():
    assert agent_class("impala") is Impala
    assert agent_class("callboard.agents.impala:Impala") is Impala


def test_an_agent_of_the_users_own_is_found_by_its_path(user_package):
    found = agent_class("someones_agents.good:Mine")
    assert issubclass(found, Impala) and found is not Impala
    assert agent_name(found()) == "someones_agents.good:Mine"


@pytest.mark.parametrize(
    "name, message",
    [
        ("impalla", "unknown agent 'impalla'; did you mean 'impala'?"),
        ("xyz", f"unknown agent 'xyz'; choose from {', '.join(AGENTS)}"),
        ("someones_agents.good", "or write package.module:Class"),
        ("someones_agents.good:Other", "is not a subclass of callboard.agents.Agent"),
        ("someones_agents.good:Mind", "has no 'Mind', did you mean 'Mine'?"),
        ("someones_agents.good:an_agent", "is not a subclass of callboard.agents.Agent"),
        ("someones_agents.bad:Mine", "cannot be imported: No module named 'someones_agents.bad'"),
        ("someones_agents.broken:Mine", "cannot be imported: No module named 'no_such_package_at_all'"),
    ],
)
def test_what_is_no_agent_is_refused_in_one_line(user_package, name, message):
    with pytest.raises(CallboardError) as caught:
        agent_class(name)
    assert message in str(caught.value) and name in str(caught.value)
    assert "\n" not in str(caught.value)
