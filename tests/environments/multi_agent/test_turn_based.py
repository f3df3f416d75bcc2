"""Turn-based environments of PettingZoo: whatever their conversion would stumble over is one line first."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from callboard.environments.multi_agent.pettingzoo_adapter import PettingZooEnvironment
from callboard.errors import CallboardError

pettingzoo: Any = pytest.importorskip("pettingzoo")
AGENTS = ["white", "black"]
SPACE = gymnasium.spaces.Discrete(2)


def without(games, what, agent="black"):
    getattr(games, what).pop(agent)


FAULTS = {
    "an end that is a text": (lambda g: g.terminations.update(black="no"), "'black' terminated 'no': it must"),
    "an end that is nothing": (lambda g: g.truncations.update(white=None), "'white' truncated None: it must be True"),
    "an end that is an array": (
        lambda g: g.terminations.update(black=np.array([True, False])),
        "must be True or False",
    ),
    "an end that is missing": (lambda g: without(g, "terminations"), "agent 'black' no entry in 'terminations'"),
    "an end of another name": (lambda g: without(g, "truncations", "white"), "agent 'white' no entry in 'truncations'"),
    "ends as a list": (lambda g: setattr(g, "terminations", [False, False]), "no dictionary 'terminations' by agent"),
    "a reward that is missing": (lambda g: without(g, "rewards"), "agent 'black' no entry in 'rewards'"),
    "a reward that is a text": (lambda g: g.rewards.update(white="1"), "'white' the reward '1': it must be a number"),
    "an info that is missing": (lambda g: without(g, "infos"), "agent 'black' no entry in 'infos'"),
    "an info that is nothing": (lambda g: g.infos.update(black=None), "agent 'black' the info None, no dictionary"),
    "a turn of a stranger": (lambda g: setattr(g, "agent_selection", "red"), "agent_selection 'red', which is none of"),
    "an agent of no entry": (lambda g: g.agents.append("red"), "agent 'red' no entry in 'terminations'"),
    "agents that are a number": (lambda g: setattr(g, "agents", 2), "leaves no list 'agents'"),
}


class Game(pettingzoo.AECEnv):
    """A game of two that never ends, with a fault after as many calls as the test says."""

    possible_agents = AGENTS
    observation_space = action_space = staticmethod(lambda agent: SPACE)
    observe = staticmethod(lambda agent: 1)
    render_mode = None

    def __init__(self, parallelizable, fault=None, call=0):
        self.metadata = {"name": "game", "is_parallelizable": parallelizable}
        self._fault, self._call = fault, call

    def reset(self, seed=None, options=None):
        self._calls = 0
        self._give(0)

    def step(self, action):
        self._calls += 1
        self._give(self._calls % 2)

    def _give(self, turn):
        self.agents, self.agent_selection = list(AGENTS), AGENTS[turn]
        self.terminations, self.truncations = dict.fromkeys(AGENTS, False), dict.fromkeys(AGENTS, False)
        self.rewards, self._cumulative_rewards = dict.fromkeys(AGENTS, 0.5), dict.fromkeys(AGENTS, 0.5)
        self.infos = {agent: {} for agent in AGENTS}
        if self._calls == self._call and self._fault is not None:
            self._fault(self)


def play(game):
    environment = PettingZooEnvironment(game, "game")
    environment.reset(0)
    for _ in range(3):
        steps = environment.step(dict.fromkeys(AGENTS, np.int32(0)))
    return steps


@pytest.mark.parametrize("parallelizable", [False, True], ids=["by turns", "in cycles"])
@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_is_one_line(what, parallelizable):
    fault, words = FAULTS[what]
    for call in (0, 1, 2):
        with pytest.raises(CallboardError) as error:
            play(Game(parallelizable, fault, call))
        method = "'step'" if call else "'reset'"
        assert words in str(error.value) and f"{method} of game" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("parallelizable, reward", [(False, 0.5), (True, 1.0)], ids=["by turns", "in cycles"])
def test_a_game_without_faults_is_played(parallelizable, reward):
    assert {agent: step.reward for agent, step in play(Game(parallelizable)).items()} == dict.fromkeys(AGENTS, reward)


def test_a_parallel_environment_by_turns_is_the_parallel_one_itself():
    from pettingzoo.test.example_envs import generated_agents_parallel_v0
    from pettingzoo.utils import parallel_to_aec

    made = generated_agents_parallel_v0.env()
    made.possible_agents = ["a"]
    assert parallel_to_aec(made).env.env is made
