"""Rewards of agents in steps in which they are not observed, in the adapters of several agents."""

import dm_env
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from callboard.environments.multi_agent.dm_env_agents import DmEnvAgents
from callboard.environments.multi_agent.pettingzoo_adapter import PettingZooEnvironment
from callboard.errors import CallboardError

# One entry per step: agents that are observed, rewards, and agents that terminate or are truncated in it.
DEATH = [({"a"}, {"a": 1, "b": -5}, {"b"}), ({"a"}, {"a": 1}, {"a"})]
SKIPPED = [({"a"}, {"a": 1, "b": 7}, set()), ({"a", "b"}, {"a": 1, "b": 2}, set()), ({"a", "b"}, {"b": -5}, {"a", "b"})]
LOST = [({"a"}, {"a": 1, "b": 7}, set()), ({"a", "b"}, {"b": -5}, {"a", "b"})]
LOST_AT_THE_END = [({"a"}, {"a": 1, "b": 7}, set()), ({"a"}, {}, {"a", "b"})]
AFTER_THE_END = [({"a", "b"}, {"a": 0, "b": -5}, {"b"}), ({"a"}, {"a": 1, "b": 3}, {"a"})]
MISSING = [({"a", "b"}, {"b": 2}, set()), ({"a", "b"}, {"b": 2}, {"a", "b"})]
UNKNOWN: list[tuple[set, dict, set]] = [({"a", "b"}, {"a": 1, "bb": 3}, set())]


class Game:
    """Gives what a script says; all agents are observed at the reset, and those that are observed act."""

    metadata, render_mode, possible_agents = {"name": "game"}, None, ["a", "b"]
    unwrapped = property(lambda self: self)

    def __init__(self, script, truncates=()):
        self.script, self.truncates = script, truncates

    def observation_space(self, agent):
        return spaces.Box(-9, 9, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.time = ["a", "b"], 0
        return dict.fromkeys(self.agents, np.ones(1, np.float32)), {}

    def step(self, actions):
        observed, rewards, over = self.script[self.time]
        self.time += 1
        self.agents = [agent for agent in self.agents if agent not in over]
        terminated, truncated = over - set(self.truncates), over & set(self.truncates)
        flags = (dict.fromkeys(terminated, True), dict.fromkeys(truncated, True))
        return dict.fromkeys(observed, np.ones(1, np.float32)), rewards, *flags, {}

    def close(self):
        pass


class DmGame(dm_env.Environment):
    def __init__(self, script):
        self.script = script

    def observation_spec(self):
        return dict.fromkeys("ab", specs.Array((1,), np.float32))

    def action_spec(self):
        return dict.fromkeys("ab", specs.DiscreteArray(2))

    def reward_spec(self):
        return dict.fromkeys("ab", specs.Array((), np.float32))

    def reset(self):
        self.time, self.over = 0, set()
        return dm_env.restart(dict.fromkeys("ab", np.ones(1, np.float32)))

    def step(self, actions):
        observed, rewards, over = self.script[self.time]
        self.time += 1
        self.over |= over
        last = "a" in self.over
        discounts = {agent: 0.0 if agent in over else 1.0 for agent in "ab"}
        kind = dm_env.StepType.LAST if last else dm_env.StepType.MID
        return dm_env.TimeStep(kind, rewards, discounts, dict.fromkeys(observed, np.ones(1, np.float32)))


ADAPTED = {
    "pettingzoo": lambda script: PettingZooEnvironment(Game(script), "game"),
    "dm_env": lambda script: DmEnvAgents(DmGame(script), "game"),
}
adapters = pytest.mark.parametrize("adapter", ADAPTED)


def played(environment):
    """The rewards of each agent's steps, and whether it has terminated there."""
    steps, found = environment.reset(), []
    while not environment.is_over:
        acting = [agent for agent, step in steps.items() if not (step.terminated or step.truncated)]
        steps = environment.step(dict.fromkeys(acting, 0))
        found.append({agent: (step.reward, step.terminated) for agent, step in steps.items()})
    return found


@adapters
def test_a_final_reward_needs_no_observation(adapter):
    environment = ADAPTED[adapter](DEATH)
    assert played(environment) == [{"a": (1, False), "b": (-5, True)}, {"a": (1, True)}]
    environment.reset()
    assert environment.step({"a": 0, "b": 0})["b"].observation.tolist() == [0]


@adapters
def test_a_reward_without_an_observation_is_added_to_the_next_one(adapter):
    assert played(ADAPTED[adapter](SKIPPED)) == [
        {"a": (1, False)},
        {"a": (1, False), "b": (0, False)},
        {"a": (0, True), "b": (4, True)},
    ]


@adapters
@pytest.mark.parametrize("script, reward", [(LOST, "2"), (LOST_AT_THE_END, "7")])
def test_a_reward_that_belongs_to_no_transition_is_an_error(adapter, script, reward):
    message = f"^'step' of game gives agent 'b' the reward {reward}, and its part ends without an observation of it"
    with pytest.raises(CallboardError, match=message):
        played(ADAPTED[adapter](script))


def test_an_agent_that_is_truncated_with_a_reward_needs_an_observation():
    with pytest.raises(CallboardError, match="gives agent 'b' the reward -5, and its part ends without an observation"):
        played(PettingZooEnvironment(Game(DEATH, truncates="b"), "game"))
    without = [({"a"}, {"a": 1}, {"b"}), ({"a"}, {"a": 1}, {"a"})]
    assert played(PettingZooEnvironment(Game(without, truncates="b"), "game")) == [{"a": (1, False)}, {"a": (1, True)}]


@adapters
def test_kept_rewards_do_not_reach_the_next_episode(adapter):
    environment = ADAPTED[adapter](SKIPPED)
    environment.reset()
    environment.step({"a": 0, "b": 0})
    assert played(environment)[-1]["b"] == (4, True)


@adapters
def test_a_reward_after_the_end_is_reported_once(adapter, caplog):
    assert played(ADAPTED[adapter](AFTER_THE_END)) == [{"a": (0, False), "b": (-5, True)}, {"a": (1, True)}]
    assert [record.getMessage() for record in caplog.records] == [
        "game gives agent 'b' the reward 3 after its part has ended: it is ignored"
    ]


@adapters
def test_a_reward_that_is_missing_is_reported_once(adapter, caplog):
    assert [step["a"][0] for step in played(ADAPTED[adapter](MISSING))] == [0, 0]
    assert [record.getMessage() for record in caplog.records] == [
        "'step' of game gives agent 'a', which has acted, no reward: it counts as 0, let 'step' give it one"
    ]


@adapters
def test_unknown_agents_are_an_error(adapter):
    with pytest.raises(CallboardError, match="^unknown agent in the rewards of game: 'bb'; did you mean 'b'"):
        played(ADAPTED[adapter](UNKNOWN))


def test_agents_need_names_that_differ_as_text():
    class Twice(Game):
        possible_agents = [1, "1"]

    with pytest.raises(CallboardError, match=r"game has agents that have the same name as text: \[1, '1'\]; rename"):
        PettingZooEnvironment(Twice([]), "game")
