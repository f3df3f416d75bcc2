"""The two-step game: its payoffs, as a game of two agents and of a group."""

import itertools
import pathlib

import pytest

from callboard.environments import make_multi_agent

ROOT = pathlib.Path(__file__).resolve().parents[2]
GAME = "examples.two_step_game:TwoStepGame"


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))


def test_payoffs():
    environment = make_multi_agent(GAME, 0, groups={"team": ["*"]}, state="environment")
    earned = {}
    for first, second, third, fourth in itertools.product(range(2), repeat=4):
        step = environment.reset()["team"]
        assert step.observation["state"].tolist() == [1, 0, 0, 0]
        step = environment.step({"team": {"agent_0": first, "agent_1": second}})["team"]
        assert step.observation["agent_1"] == 1 + first and step.reward == 0 and not environment.is_over
        step = environment.step({"team": {"agent_0": third, "agent_1": fourth}})["team"]
        assert environment.is_over and step.terminated and step.observation["state"].tolist() == [0, 0, 0, 1]
        earned[first, second, third, fourth] = step.reward
    for actions, reward in earned.items():
        assert reward == (7 if actions[0] == 0 else {0: 0, 1: 1, 2: 8}[sum(actions[2:])])


def test_agents_share_what_the_team_earns():
    environment = make_multi_agent(GAME, 0)
    environment.reset()
    environment.step({"agent_0": 1, "agent_1": 0})
    assert [step.reward for step in environment.step({"agent_0": 1, "agent_1": 1}).values()] == [4, 4]
