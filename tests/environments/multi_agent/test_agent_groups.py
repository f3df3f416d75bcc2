"""Groups of agents as one agent: what a group observes, does and receives."""

import numpy as np
import pytest
from dm_env import specs
from scripted_agents import SPEC, ScriptedAgents, batches_of, seen

from callboard.environments.multi_agent.agent_groups import GroupedAgents
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec

AGENTS = ("red_0", "blue", "red_1")


def grouped(*episodes, groups=None):
    return GroupedAgents(ScriptedAgents(*episodes, agents=AGENTS), groups or {"red": ["red_*"]})


def shown(step):
    """Plain values: observations by part, reward, terminated, truncated."""
    observation = {key: value.tolist() for key, value in step.observation.items()}
    return observation, step.reward, step.terminated, step.truncated


def test_specs():
    environment = grouped()
    assert environment.agents == ("red", "blue")
    assert environment.specs["blue"] == SPEC
    observation, action, encoding = environment.specs["red"]
    assert observation == {
        "red_0": SPEC.observation,
        "red_1": SPEC.observation,
        "present": specs.BoundedArray((2,), np.float32, 0, 1),
    }
    assert action == {"red_0": SPEC.action, "red_1": SPEC.action}
    assert encoding.spec().observation == observation


def test_members_end_one_after_the_other():
    environment = grouped(
        [
            {"red_0": seen(1), "blue": seen(21), "red_1": seen(11)},
            {"red_0": seen(2, 3, "terminated"), "blue": seen(22, 1), "red_1": seen(12, 4)},
            {"blue": seen(23, 1), "red_1": seen(13, 5)},
            {"blue": seen(24, 1), "red_1": seen(14, 6, "terminated")},
            {"blue": seen(25, 1, "truncated")},
        ]
    )
    steps = environment.reset()
    assert shown(steps["red"]) == ({"red_0": [1], "red_1": [11], "present": [1, 1]}, 0, False, False)
    assert steps["red"].observation["present"].dtype == np.float32
    assert steps["blue"].observation.tolist() == [21]
    steps = environment.step({"red": {"red_0": 5, "red_1": 6}, "blue": 7})
    assert shown(steps["red"]) == ({"red_0": [2], "red_1": [12], "present": [0, 1]}, 7, False, False)
    steps = environment.step({"red": {"red_0": 5, "red_1": 6}, "blue": 7})
    assert shown(steps["red"]) == ({"red_0": [0], "red_1": [13], "present": [0, 1]}, 5, False, False)
    steps = environment.step({"red": {"red_0": 5, "red_1": 6}, "blue": 7})
    assert shown(steps["red"]) == ({"red_0": [0], "red_1": [14], "present": [0, 0]}, 6, True, False)
    assert list(environment.step({"blue": 7})) == ["blue"]
    both, one = {"red_0": 5, "red_1": 6, "blue": 7}, {"red_1": 6, "blue": 7}
    assert environment.unwrapped.taken == [both, one, one, {"blue": 7}]


@pytest.mark.parametrize(
    "ends, present, terminated",
    [
        (("terminated", "terminated"), [0, 0], True),
        (("truncated", "truncated"), [1, 1], False),
        (("terminated", "truncated"), [0, 1], False),
        # The environment's episode is over, but agents have not ended.
        (("", "terminated"), [1, 0], False),
    ],
)
def test_the_last_members_end_together(ends, present, terminated):
    environment = grouped(
        [{"red_0": seen(1), "red_1": seen(11)}, {"red_0": seen(2, 1, ends[0]), "red_1": seen(12, 1, ends[1])}]
    )
    environment.reset()
    step = environment.step({"red": {"red_0": 0, "red_1": 0}})["red"]
    assert shown(step) == ({"red_0": [2], "red_1": [12], "present": present}, 2, terminated, not terminated)


def test_members_that_appear_and_disappear():
    environment = grouped(
        [
            {"red_1": seen(11)},
            {"blue": seen(21), "red_0": seen(1, 0)},
            {"blue": seen(22)},
            {"red_0": seen(3), "red_1": seen(13)},
        ]
    )
    assert shown(environment.reset()["red"])[0] == {"red_0": [0], "red_1": [11], "present": [0, 1]}
    assert shown(environment.step({"red": {"red_0": 5, "red_1": 6}})["red"])[0] == {
        "red_0": [1],
        "red_1": [0],
        "present": [1, 0],
    }
    assert list(environment.step({"red": {"red_0": 5, "red_1": 6}, "blue": 7})) == ["blue"]
    assert environment.unwrapped.taken == [{"red_1": 6}, {"red_0": 5, "blue": 7}]


def test_infos_are_those_of_the_members():
    steps = grouped([{"red_0": seen(1), "red_1": seen(2)}]).reset()
    assert steps["red"].info == {"red_0": {"n": 1}, "red_1": {"n": 2}}


def test_a_policy_acts_for_a_group():
    environment = grouped([{"red_0": seen(1)}, {"red_0": seen(2, 3.0), "red_1": seen(12)}])
    batches = batches_of(environment, mapping={"red": "p", "blue": "q"}, policies=("p", "q"))
    assert batches.reset()["p"].observation["present"].tolist() == [[1, 0]]
    actions = {"red_0": np.array([4], np.int32), "red_1": np.array([5], np.int32)}
    timestep = batches.step({"p": actions})["p"]
    assert timestep.reward.tolist() == [3] and timestep.observation["red_1"].tolist() == [[12]]
    assert environment.unwrapped.taken == [{"red_0": 4}]


def test_absent_members_have_one_legal_action():
    mask = specs.BoundedArray((3,), np.int8, 0, 1)
    spec = EnvironmentSpec({"observation": SPEC.observation, "action_mask": mask}, specs.DiscreteArray(3))
    step = seen(0)._replace(observation={"observation": np.ones(1), "action_mask": np.array([0, 1, 1], np.int8)})
    environment = GroupedAgents(ScriptedAgents([{"a": step}], specs={"a": spec, "b": spec}), {"team": ["*"]})
    observation = environment.reset()["team"].observation
    assert observation["a"]["action_mask"].tolist() == [0, 1, 1]
    assert observation["b"]["action_mask"].tolist() == [1, 0, 0] and observation["b"]["observation"].tolist() == [0]


@pytest.mark.parametrize(
    "groups, message",
    [
        ({"red": ["rde_*"]}, "agent_groups: red: no agent matches 'rde_*'; did you mean 'red_1'?"),
        ({"red": []}, "agent_groups: 'red' has no members; choose from red_0, blue, red_1"),
        (
            {"red": ["red_*"], "all": ["*"]},
            "agent 'red_0' is in the groups 'red' and 'all': leave it out of one",
        ),
        ({"blue": ["red_*"]}, "agent_groups: 'blue' is the name of an agent outside the group: rename the group"),
    ],
)
def test_mistakes(groups, message):
    with pytest.raises(CallboardError) as caught:
        grouped(groups=groups)
    assert str(caught.value) == message


def test_names_of_parts_are_no_names_of_members():
    with pytest.raises(CallboardError, match="^agent_groups: an agent named 'present' cannot be a member"):
        GroupedAgents(ScriptedAgents(agents=("present", "b")), {"team": ["*"]})
