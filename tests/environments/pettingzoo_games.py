"""Environments written to PettingZoo's parallel and AEC interfaces, without the package."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Race:
    """Two runners: an action `a` of 1, 2 or 3 moves by `a`.  A runner terminates at 4; time is up after 3 steps."""

    metadata = {"render_fps": 12, "render_modes": ["rgb_array"]}
    possible_agents = ["left", 2]
    render_mode = "rgb_array"
    state_space = spaces.Box(0, 20, (2,), np.int64)

    def __init__(self, goal=4):
        self.goal = goal
        self.received = []

    @property
    def unwrapped(self):
        return self

    def observation_space(self, agent):
        return spaces.Box(0, 20, (1,), np.float64)

    def action_space(self, agent):
        return spaces.Discrete(3, start=1)

    def reset(self, seed=None, options=None):
        self.received.append((seed, options))
        self.agents = list(self.possible_agents)
        self.places = dict.fromkeys(self.agents, 0)
        self.time = 0
        return self._observations(), {agent: {"began": True} for agent in self.agents}

    def step(self, actions):
        assert list(actions) == self.agents and all(type(action) is int for action in actions.values())
        self.time += 1
        for agent, action in actions.items():
            self.places[agent] += action
        observations = self._observations()
        rewards = {agent: np.float64(action) for agent, action in actions.items()}
        terminations = {agent: self.places[agent] >= self.goal for agent in actions}
        truncations = {agent: self.time == 3 for agent in actions}
        self.agents = [agent for agent in self.agents if not (terminations[agent] or truncations[agent])]
        return observations, rewards, terminations, truncations, {agent: {"time": self.time} for agent in actions}

    def _observations(self):
        return {agent: np.array([self.places[agent]], np.float64) for agent in self.agents}

    def state(self):
        return np.array(list(self.places.values()))

    def render(self):
        return np.full((4, 6, 3), self.time, np.uint8)

    def close(self):
        pass


class Dropping(Race):
    """Drops the runner 2 after a step with an observation, but without an end; shows both in every step."""

    def step(self, actions):
        observations, rewards, terminations, truncations, infos = super().step(actions)
        self.agents = [agent for agent in self.agents if agent != 2]
        observations = {agent: np.array([self.places[agent]], np.float64) for agent in self.possible_agents}
        return observations, rewards, terminations, truncations, infos


class Reviving(Race):
    """Lists runners that have terminated as if they were still there."""

    def step(self, actions):
        result = super().step(actions)
        result[0].update({agent: np.array([0.0]) for agent in self.possible_agents})
        self.agents = list(self.possible_agents)
        return result


class Tasked(Race):
    def set_task(self, task):
        self.goal = task


class NoAgents(Race):
    possible_agents = []


class TextSpaces(Race):
    def observation_space(self, agent):
        return spaces.Text(5)


class OldReset(Race):
    def reset(self, seed=None, options=None):
        return super().reset(seed, options)[0]


class NoGame(Race):
    """Lists its agents in the constructor alone."""

    def reset(self, seed=None, options=None):
        outcome = super().reset(seed, options)
        self.agents = []
        return outcome


class OldStep(Race):
    def step(self, actions):
        return super().step(actions)[:4]


class NoReward(Race):
    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, dict.fromkeys(rewards), *rest


class SaysNo(Race):
    def step(self, actions):
        observations, rewards, terminations, *rest = super().step(actions)
        return observations, rewards, dict.fromkeys(terminations, "no"), *rest


def annotated(goal=4) -> Race:
    raise AssertionError("called, although its annotation says what it makes")


def plain(goal=4):
    return Race(goal)


def pettingzoo_connect_four():
    """The AEC environment, to be converted."""
    from pettingzoo.classic import connect_four_v3

    return connect_four_v3.env()


def tictactoe_by_turns():
    """A turn-based environment that PettingZoo has converted."""
    from pettingzoo.classic import tictactoe_v3
    from pettingzoo.utils import turn_based_aec_to_parallel

    return turn_based_aec_to_parallel(tictactoe_v3.env())


def single():
    return gymnasium.make("CartPole-v1")


def number():
    return 5
