"""Environments with the dictionaries of RLlib's `MultiAgentEnv`: old and new, simultaneous and by turns."""

import gymnasium
import numpy as np
import pytest

from callboard.environments import is_multi_agent, make_multi_agent
from callboard.errors import CallboardError

BOX = gymnasium.spaces.Box(-1, 9, (1,), np.float32)
CHOICE = gymnasium.spaces.Discrete(3, start=1)


def seen(value):
    return np.array([value], np.float32)


class Both:
    """Both agents act in every step; the interface of RLlib 2."""

    def __init__(self, ends="terminated"):
        self.possible_agents = ["a", 1]
        self.observation_spaces = dict.fromkeys(self.possible_agents, BOX)
        self.action_spaces = dict.fromkeys(self.possible_agents, CHOICE)
        self.ends = ends

    def reset(self, *, seed=None, options=None):
        self.seed, self.time = seed, 0
        return {"a": seen(0), 1: seen(0)}, {"a": {"began": True}}

    def step(self, actions):
        self.time += 1
        over = self.time == 2
        ends = {"terminated": {"__all__": False}, "truncated": {"__all__": False}}
        ends[self.ends]["__all__"] = over
        observations = {agent: seen(action) for agent, action in actions.items()}
        rewards = {agent: float(action) for agent, action in actions.items()}
        return (
            observations,
            rewards,
            ends["terminated"],
            ends["truncated"],
            {"a": {"time": self.time}, "__common__": {}},
        )


class Turns:
    """The agents act in turns; the interface of RLlib 1, with one space for all agents."""

    observation_space, action_space = BOX, CHOICE

    def get_agent_ids(self):
        return {"x", "y"}

    def reset(self):
        self.time = 0
        return {"x": seen(0)}

    def step(self, actions):
        self.time += 1
        (actor,) = actions
        other = {"x": "y", "y": "x"}[actor]
        done = {"__all__": self.time == 3}
        shown = {"x": seen(9), "y": seen(9)} if done["__all__"] else {other: seen(self.time)}
        return shown, {actor: 1.0, other: 0.5}, done, {}


def shown(steps):
    return {
        agent: (*step.observation.tolist(), step.reward, step.terminated, step.truncated)
        for agent, step in steps.items()
    }


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_agents_that_act_together(ends):
    environment = make_multi_agent(Both, 3, {"ends": ends})
    assert environment.agents == ("a", "1")
    assert shown(environment.reset(3)) == {"a": (0, 0, False, False), "1": (0, 0, False, False)}
    assert environment.unwrapped.seed == 3
    # Actions begin at 0 here, and at 1 in the environment.
    steps = environment.step({"a": 0, "1": 2})
    assert shown(steps) == {"a": (1, 1, False, False), "1": (3, 3, False, False)}
    assert steps["a"].info == {"time": 1} and not environment.is_over
    flags = (ends == "terminated", ends == "truncated")
    assert shown(environment.step({"a": 1, "1": 1})) == {"a": (2, 2, *flags), "1": (2, 2, *flags)}
    assert environment.is_over
    assert set(environment.reset()) == {"a", "1"} and not environment.is_over


def test_agents_that_wait_see_their_last_observation_and_get_every_reward():
    environment = make_multi_agent(Turns, 3)
    assert set(environment.reset(3)) == {"x"}, "y has not seen anything yet"
    assert shown(environment.step({"x": 0})) == {"x": (0, 1.0, False, False), "y": (1, 0.0, False, False)}
    # The action of x, which waits, is not passed on.  The reward of y has the 0.5 of the step in which it did not act.
    assert shown(environment.step({"x": 2, "y": 0})) == {"x": (2, 0.5, False, False), "y": (1, 1.5, False, False)}
    assert shown(environment.step({"x": 0, "y": 0})) == {"x": (9, 1.0, True, False), "y": (9, 0.5, True, False)}
    assert environment.is_over


def test_the_mask_of_an_agent_that_waits_allows_the_first_action_alone():
    class Masked(Turns):
        observation_space = gymnasium.spaces.Dict({"observation": BOX, "action_mask": gymnasium.spaces.MultiBinary(3)})

        def masked(self, observations):
            mask = np.ones(3, np.int8)
            return {agent: {"observation": one, "action_mask": mask} for agent, one in observations.items()}

        def reset(self):
            return self.masked(super().reset())

        def step(self, actions):
            observations, *rest = super().step(actions)
            return self.masked(observations), *rest

    environment = make_multi_agent(Masked, 3)
    environment.reset(3)
    masks = {agent: step.observation["action_mask"].tolist() for agent, step in environment.step({"x": 0}).items()}
    assert masks == {"x": [1, 0, 0], "y": [1, 1, 1]}


def test_a_class_of_ray_is_recognized_without_importing_it():
    base = type("MultiAgentEnv", (gymnasium.Env,), {"__module__": "ray.rllib.env.multi_agent_env"})
    assert is_multi_agent(type("Own", (base,), {}))
    assert is_multi_agent(Both) and is_multi_agent(Turns)
    assert not is_multi_agent("CartPole-v1")


def test_spaces_may_be_a_dict_by_agent():
    class Spaces(Both):
        def __init__(self):
            super().__init__()
            self.possible_agents = ["a", "b"]
            self.observation_spaces = self.action_spaces = None
            self.observation_space = gymnasium.spaces.Dict({"a": BOX, "b": CHOICE})
            self.action_space = CHOICE

    specs = make_multi_agent(Spaces, 1).specs
    assert specs["a"].observation.shape == (1,) and specs["b"].observation.num_values == 3


def test_mistakes_are_one_line():
    class NoSpace(Both):
        def __init__(self):
            super().__init__()
            del self.action_spaces[1]

    class ThreeValues(Both):
        def step(self, actions):
            return {}, {}, {}

    with pytest.raises(CallboardError, match="NoSpace has no action_space for agent '1': add it to action_spaces"):
        make_multi_agent(NoSpace, 1)
    environment = make_multi_agent(ThreeValues, 1)
    environment.reset(1)
    with pytest.raises(CallboardError, match="must return .observations, rewards, terminateds, truncateds, infos."):
        environment.step({"a": 0, "1": 0})


def test_a_task_must_reach_the_environment():
    environment = make_multi_agent(Turns, 3)
    environment.set_task({"size": 5})
    with pytest.raises(CallboardError, match="Turns cannot be set to a task: give it a method 'set_task', or let 'res"):
        environment.reset(3)
