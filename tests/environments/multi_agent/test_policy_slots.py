"""Mappings of agents to policies, and their mistakes."""

import collections

import numpy as np
import pytest
from dm_env import specs

from callboard.environments import parse_mapping
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec

AGENTS = ("red_0", "red_1", "blue_0")


def by_number(agent, episode, rng):
    return ("x", "y")[episode % 2]


def by_agent(agent, episode, rng):
    """Gives `blue_0`, which has spaces of its own, one of two policies of its own."""
    return rng.choice(["x", "y"]) if agent.startswith("red") else "z" if episode < 99 else "w"


def too_late(agent, episode, rng):
    return agent if episode < 5 else "gone"


def failing(agent, episode, rng):
    return {"red_0": "x"}[agent]


def too_few(agent):
    return "x"


def policies_of(mapping, policies, agents=AGENTS):
    return dict(parse_mapping(mapping, agents, policies).policies_of)


def test_a_function_gives_agents_with_different_spaces_policies_of_their_own():
    small, large = (EnvironmentSpec(specs.Array((size,), np.float32), specs.DiscreteArray(2)) for size in (1, 2))
    spec_of = {"red_0": small, "red_1": small, "blue_0": large}
    parsed = parse_mapping(by_agent, AGENTS, dict.fromkeys("vwxyz"), spec_of)
    assert parsed.policies_of == {"red_0": ("x", "y"), "red_1": ("x", "y"), "blue_0": ("w", "z")}
    assert parse_mapping(by_agent, AGENTS, dict.fromkeys("wxyz"), dict.fromkeys(AGENTS, small)).policies_of == {
        agent: ("w", "x", "y", "z") for agent in AGENTS
    }


def test_one_policy_plays_for_all_agents():
    assert policies_of(None, {"p": None}) == {agent: ("p",) for agent in AGENTS}


def test_policies_play_for_the_agents_of_their_names():
    assert policies_of(None, {agent: None for agent in AGENTS}) == {agent: (agent,) for agent in AGENTS}


def test_the_first_pattern_that_matches_decides():
    mapping = {"red_1": "x", "red_*": {"y": 1, "z": 3}, "*": "z"}
    parsed = parse_mapping(mapping, AGENTS, dict.fromkeys("xyz"))
    assert parsed.policies_of == {"red_0": ("y", "z"), "red_1": ("x",), "blue_0": ("z",)}
    rng = np.random.default_rng(0)
    counts = collections.Counter(parsed("red_0", episode, rng) for episode in range(4000))
    assert abs(counts["z"] / 4000 - 0.75) < 0.03 and set(counts) == {"y", "z"}
    assert parsed("red_1", 0, rng) == "x"


def test_a_function_chooses_among_the_policies_that_may_play_for_an_agent():
    policies = {"x": None, "y": ["red_*"]}
    assert policies_of(by_number, policies) == {"red_0": ("x", "y"), "red_1": ("x", "y"), "blue_0": ("x",)}
    parsed = parse_mapping("test_policy_slots:by_number", AGENTS, policies)
    rng = np.random.default_rng(0)
    assert [parsed("red_0", episode, rng) for episode in range(3)] == ["x", "y", "x"]
    with pytest.raises(CallboardError) as caught:
        parsed("blue_0", 7, rng)
    assert str(caught.value) == ("the mapping gives agent 'blue_0' the policy 'y' in episode 7; choose from x")


@pytest.mark.parametrize(
    "mapping, policies, message",
    [
        (None, {}, "there are no policies: name at least one"),
        (
            None,
            {"red_0": None, "red_1": None},
            "agent 'blue_0' has no policy: name a policy 'blue_0', or give a mapping such as {'blue_0': 'red_0'}",
        ),
        (
            None,
            dict.fromkeys((*AGENTS, "green")),
            "no agent can get the policy 'green': let the mapping name it for one of red_0, red_1, blue_0, or leave it "
            "out",
        ),
        (
            None,
            {"p": ["red_*"]},
            "the mapping gives agent 'blue_0' the policy 'p', which plays for red_*: change the mapping, or the "
            "policy's agents",
        ),
        (
            {"red_*": "x"},
            {"x": None},
            "agent 'blue_0' has no policy: add a pattern for it to the mapping, such as '*'",
        ),
        (
            {"*": "chasr"},
            {"chaser": None, "runner": None},
            "unknown policy in the mapping of '*': 'chasr'; did you mean 'chaser'?",
        ),
        ({"rde_*": "x", "*": "x"}, {"x": None}, "mapping: no agent matches 'rde_*'; did you mean 'red_1'?"),
        ({"*": {}}, {"x": None}, "mapping: '*' names no policy; choose from x"),
        (
            {"*": {"x": 0}},
            {"x": None},
            "mapping: the weight of policy 'x' for '*' is 0: give a number above 0",
        ),
        (
            {"*": {"x": True}},
            {"x": None},
            "mapping: the weight of policy 'x' for '*' is True: give a number above 0",
        ),
        (
            {"*": "x"},
            {"x": None, "y": None},
            "no agent can get the policy 'y': let the mapping name it for one of red_0, red_1, blue_0, or leave it out",
        ),
        (
            by_number,
            {"x": ["red_*"]},
            "agent 'blue_0' has no policy: let the agents of a policy include it",
        ),
        (
            by_number,
            {"x": ["green"]},
            "agents of policy 'x': no agent matches 'green'; the agents are red_0, red_1, blue_0",
        ),
        (
            "test_policy_slots:too_late",
            dict.fromkeys(AGENTS),
            "the mapping gives agent 'red_0' the policy 'gone' in episode 5; choose from red_0, red_1, blue_0",
        ),
        (
            "test_policy_slots:failing",
            {"x": None},
            "mapping 'test_policy_slots:failing' fails for agent 'red_1' in episode 0: KeyError: 'red_1'",
        ),
        (
            "x",
            {"x": None},
            "mapping 'x' is of type str: give a table {pattern: policy}, a function (agent, episode, rng) -> policy, "
            "or its name 'package.module:function'",
        ),
        (
            "test_policy_slots:by_nubmer",
            {"x": None},
            "unknown mapping 'test_policy_slots:by_nubmer'; module 'test_policy_slots' has no 'by_nubmer', did you "
            "mean 'by_number'?",
        ),
        (
            "test_policy_slots:too_few",
            {"x": None},
            "mapping 'test_policy_slots:too_few' cannot be called with (agent, episode, rng), in this order: too many "
            "positional arguments",
        ),
        (
            "os:system",
            {"x": None},
            "mapping 'os:system' is refused: 'os' is part of Python's standard library, which "
            "contains nothing that a run can use; name a module of your own",
        ),
    ],
)
def test_mistakes(mapping, policies, message):
    with pytest.raises(CallboardError) as caught:
        parse_mapping(mapping, AGENTS, policies, dict.fromkeys(AGENTS, "spec"))
    assert str(caught.value) == message
