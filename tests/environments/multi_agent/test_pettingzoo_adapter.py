"""PettingZoo environments: what agents receive, and mistakes."""

import numpy as np
import pettingzoo_games as games
import pytest
from dm_env import specs
from gymnasium import spaces

from callboard.environments.multi_agent.pettingzoo_adapter import PettingZooEnvironment
from callboard.errors import CallboardError


def shown(steps):
    """Plain values by agent: observation, reward, terminated, truncated, info."""
    return {
        agent: (step.observation.tolist(), step.reward, step.terminated, step.truncated, dict(step.info))
        for agent, step in steps.items()
    }


def adapted(kind, **options):
    return PettingZooEnvironment(kind(**options), "my:Race")


def test_agents_and_specs():
    environment = adapted(games.Race)
    assert environment.agents == ("left", "2")
    for agent in environment.agents:
        assert environment.specs[agent].observation == specs.BoundedArray((1,), np.float32, 0, 20)
        assert environment.specs[agent].action == specs.DiscreteArray(3, dtype=np.int32)
    assert environment.is_over


def test_an_episode():
    environment = adapted(games.Race)
    assert shown(environment.reset(seed=3)) == {
        "left": ([0], 0, False, False, {"began": True}),
        "2": ([0], 0, False, False, {"began": True}),
    }
    assert not environment.is_over
    # Agents' actions begin at 0, the environment's at 1.
    assert shown(environment.step({"left": np.int32(0), "2": 2})) == {
        "left": ([1], 1, False, False, {"time": 1}),
        "2": ([3], 3, False, False, {"time": 1}),
    }
    assert shown(environment.step({"left": 0, "2": 0})) == {
        "left": ([2], 1, False, False, {"time": 2}),
        "2": ([4], 1, True, False, {"time": 2}),
    }
    assert not environment.is_over
    assert shown(environment.step({"left": 0})) == {"left": ([3], 1, False, True, {"time": 3})}
    assert environment.is_over
    environment.reset()
    assert environment.unwrapped.received == [(3, None), (None, None)]


def test_an_agent_that_is_dropped_is_truncated_and_does_not_return():
    environment = adapted(games.Dropping)
    environment.reset()
    steps = environment.step({"left": 0, "2": 0})
    assert (steps["2"].terminated, steps["2"].truncated) == (False, True)
    assert list(environment.step({"left": 0})) == ["left"]
    assert environment.reset().keys() == {"left", "2"}


def test_an_agent_that_has_terminated_does_not_return():
    environment = adapted(games.Reviving)
    environment.reset()
    assert environment.step({"left": 2, "2": 0})["left"].terminated is False
    assert environment.step({"left": 0, "2": 0})["left"].terminated
    assert not environment.is_over
    environment.unwrapped.agents = [2]
    steps = environment.step({"2": 0})
    assert list(steps) == ["2"] and steps["2"].truncated and environment.is_over


def test_state_picture_and_task():
    environment = adapted(games.Race)
    environment.set_task({"wind": 1})
    environment.reset()
    assert environment.unwrapped.received == [(None, {"wind": 1})]
    environment.step({"left": 1, "2": 2})
    assert environment.state_size == 2
    assert environment.state().tolist() == [2, 3] and environment.state().dtype == np.float32
    assert (environment.render() == 1).all() and environment.frames_per_second == 12
    with pytest.raises(CallboardError, match="my:Race has no method 'set_task', so a task is a mapping"):
        environment.set_task(3)
    tasked = adapted(games.Tasked)
    tasked.set_task(2)
    assert tasked.unwrapped.goal == 4
    tasked.reset()
    assert tasked.unwrapped.goal == 2


def error_of(kind):
    with pytest.raises(CallboardError) as caught:
        environment = adapted(kind)
        environment.reset()
        environment.step({"left": 0, "2": 0})
    return str(caught.value)


def test_mistakes():
    assert error_of(games.NoAgents) == "my:Race has no possible_agents: list all agents that may appear in them"
    assert error_of(games.TextSpaces).startswith("agent 'left' of my:Race: the observation space Text is not supported")
    assert error_of(games.OldReset).startswith("'reset' of my:Race must return (observations, infos)")
    assert error_of(games.OldStep).startswith("'step' of my:Race must return (observations, rewards, terminations")
    assert error_of(games.NoReward) == "'step' of my:Race gives agent 'left' the reward None: it must be a number"
    assert error_of(games.NoGame).startswith("'reset' of my:Race leaves no agents in the game: let it set 'agents' to")
    assert error_of(games.SaysNo) == "'step' of my:Race gives agent 'left' terminated 'no': it must be True or False"


def test_what_is_not_needed_may_be_missing():
    class Bare:
        """A `Race` without `unwrapped` and `close`, whose state is no vector."""

        possible_agents = ["left", 2]
        state_space = spaces.Dict({"place": spaces.Discrete(3)})

        def __init__(self):
            race = games.Race()
            for name in ("reset", "step", "observation_space", "action_space", "state"):
                setattr(self, name, getattr(race, name))
            self.agents = ["left", 2]

    environment = adapted(Bare)
    assert environment.state_size is None and isinstance(environment.unwrapped, Bare)
    environment.reset()
    environment.step({"left": 0, "2": 0})
    environment.close()


def test_environments_without_pictures():
    environment = adapted(games.Race)
    environment.unwrapped.render_mode = None
    with pytest.raises(CallboardError, match="^my:Race has no picture to show: make it with the option render_mode="):
        environment.render()
    environment.unwrapped.metadata = {}
    with pytest.raises(CallboardError, match="^my:Race has no picture to show: it has no render mode 'rgb_array'$"):
        environment.render()


def test_turn_based_games_show_a_mask_to_the_agent_that_waits():
    pytest.importorskip("pettingzoo")
    environment = PettingZooEnvironment(games.pettingzoo_connect_four(), "connect_four")
    steps = environment.reset(seed=0)

    def masks(steps):
        return {agent: step.observation["action_mask"].tolist() for agent, step in steps.items()}

    waiting, moving = [1, 0, 0, 0, 0, 0, 0], [1] * 7
    assert masks(steps) == {"player_0": moving, "player_1": waiting}
    assert masks(environment.step({"player_0": 3, "player_1": 6})) == {"player_0": waiting, "player_1": moving}
    for column in (4, 3, 4, 3, 4):
        steps = environment.step({"player_0": column, "player_1": column})
        assert not environment.is_over
    steps = environment.step({"player_0": 3, "player_1": 0})
    assert environment.is_over and masks(steps)["player_0"] == waiting
    assert [(step.reward, step.terminated) for step in steps.values()] == [(1, True), (-1, True)]
    # The board of the player who waits has the other's stones in the second plane.
    assert steps["player_1"].observation["observation"][..., 1].sum() == 4


def test_wrappers_that_only_check_calls_are_left_out():
    pytest.importorskip("pettingzoo")
    make = pytest.importorskip("mpe2.simple_spread_v3").parallel_env
    made = make(max_cycles=3)
    environment = PettingZooEnvironment(made, "simple_spread")
    assert type(environment._environment) is type(made)
    assert environment._environment.aec_env.unwrapped is made.aec_env.unwrapped
    whole, agents = make(max_cycles=3), environment.agents
    observations, _ = whole.reset(seed=1)
    steps = environment.reset(seed=1)
    for action in range(4):
        assert all((steps[agent].observation == observations[agent]).all() for agent in agents)
        if environment.is_over:
            break
        observations, rewards, _, _, _ = whole.step(dict.fromkeys(agents, action))
        steps = environment.step(dict.fromkeys(agents, action))
        assert [steps[agent].reward for agent in agents] == [rewards[agent] for agent in agents]
    assert environment.is_over and not whole.agents


def test_a_mask_that_allows_nothing_is_shown_where_agents_act_together():
    """So that it is refused; only at the end of an agent there may be nothing left to do."""

    class NothingAllowed(games.Race):
        def observation_space(self, agent):
            return spaces.Dict({"observation": super().observation_space(agent), "action_mask": spaces.MultiBinary(3)})

        def masked(self, observations):
            return {one: {"observation": at, "action_mask": np.zeros(3, np.int8)} for one, at in observations.items()}

        def reset(self, seed=None, options=None):
            observations, infos = super().reset(seed, options)
            return self.masked(observations), infos

        def step(self, actions):
            observations, *rest = super().step(actions)
            return self.masked(observations), *rest

    environment = adapted(NothingAllowed)
    steps = environment.reset()
    assert steps["left"].observation["action_mask"].tolist() == [0, 0, 0]
    environment.step({"left": 0, "2": 2})
    steps = environment.step({"left": 0, "2": 0})
    masks = {agent: (step.terminated, step.observation["action_mask"].tolist()) for agent, step in steps.items()}
    assert masks == {"left": (False, [0, 0, 0]), "2": (True, [1, 0, 0])}
