"""Environments with several agents in workers."""

import numpy as np
import pytest
import tree

from callboard import environments
from callboard.environments.checks.trial import agents_actions
from callboard.errors import CallboardError

pytest.importorskip("mpe2")
NAME = "pettingzoo:mpe.simple_spread_v3"


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "name, own, state",
    [
        (NAME, {"max_cycles": 10}, "environment"),
        ("pettingzoo_games:tictactoe_by_turns", {}, "observations"),
    ],
)
def test_a_parallel_environment_is_the_same_as_in_this_process(name, own, state):
    seen = []
    for options in (own, {**own, "env_python": "same"}):
        assert environments.is_multi_agent(name, options)
        environment = environments.make_multi_agent(name, 3, options, state=state, agent_index=True)
        rng, steps, shown = np.random.default_rng(0), environment.reset(3), []
        for _ in range(25):
            for agent, step in steps.items():
                arrays = [leaf.tobytes() for leaf in tree.flatten(step.observation)]
                shown.append((agent, arrays, step.reward, step.terminated, step.truncated))
            actions = agents_actions(environment, steps, rng)
            steps = environment.reset() if environment.is_over else environment.step(actions)
        environment.close()
        seen.append(shown)
    assert seen[0] == seen[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, message",
    [
        (
            "pettingzoo:classic.tictactoe_v3",
            "is a turn-based environment of PettingZoo, which env_python does not",
        ),
        ("worker_cases:Walk", "has one agent: leave policies"),
        ("scripted_agents:Counting", "is of type Counting: under another interpreter, the factory must give a gym"),
    ],
)
def test_others_are_refused(name, message):
    with pytest.raises(CallboardError, match=message):
        environments.make_multi_agent(name, 0, {"env_python": "same"})


def test_classes_of_the_users_own_are_known_by_making_them():
    assert not environments.is_multi_agent("worker_cases:Walk", {"env_python": "same"})


def test_a_function_is_not_given_options_that_are_not_its_own():
    options = {"env_python": "same", "env_previous_inputs": False, "env_wrappers": []}
    assert environments.is_multi_agent("pettingzoo_games:plain", options)
