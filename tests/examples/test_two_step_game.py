"""The two-step game with two agents, and with a group of them; `tests/environments` has its payoffs."""

import itertools
import pathlib

import pytest

from callboard.environments import make_multi_agent
from callboard.environments.two_step_game import MEMBERS
from callboard.environments.two_step_game import TwoStepGame as TeamGame

ROOT = pathlib.Path(__file__).resolve().parents[2]
GAME = "examples.two_step_game:TwoStepGame"


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))


def test_a_group_plays_the_game_of_a_team():
    environment, team = make_multi_agent(GAME, 0, groups={"team": ["*"]}, state="environment"), TeamGame()
    for actions in itertools.product(range(2), repeat=4):
        steps, (observation, _) = [environment.reset()["team"]], team.reset()
        seen, rewards = [observation], [0.0]
        for pair in (actions[:2], actions[2:]):
            action = dict(zip(MEMBERS, pair, strict=True))
            steps.append(environment.step({"team": action})["team"])
            observation, reward, is_over, _, _ = team.step(action)
            seen.append(observation)
            rewards.append(reward)
            assert environment.is_over == steps[-1].terminated == is_over
        assert [step.reward for step in steps] == rewards
        for step, observation in zip(steps, seen, strict=True):
            assert all((step.observation[part] == observation[part]).all() for part in (*MEMBERS, "state"))


def test_agents_share_what_the_team_earns():
    environment = make_multi_agent(GAME, 0)
    environment.reset()
    environment.step({"agent_0": 1, "agent_1": 0})
    assert [step.reward for step in environment.step({"agent_0": 1, "agent_1": 1}).values()] == [4, 4]
