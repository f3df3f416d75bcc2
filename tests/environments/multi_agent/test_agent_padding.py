"""Agents with different spaces as agents with the same."""

import numpy as np
import pytest
from dm_env import specs
from scripted_agents import ScriptedAgents

from callboard.environments import AgentStep
from callboard.environments.multi_agent.agent_padding import PaddedAgents
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec

SMALL = EnvironmentSpec(specs.BoundedArray((2,), np.float32, 1.0, 2.0), specs.DiscreteArray(2))
LARGE = EnvironmentSpec(specs.BoundedArray((3,), np.float32, -1.0, 5.0), specs.DiscreteArray(3))


def padded(a, b, *episodes):
    return PaddedAgents(ScriptedAgents(*episodes, specs={"a": a, "b": b}))


def plain(steps):
    return {agent: {key: value.tolist() for key, value in step.observation.items()} for agent, step in steps.items()}


def test_vectors_and_choices_of_different_sizes():
    first = {"a": AgentStep(np.array([1, 2], np.float32)), "b": AgentStep(np.array([3, 4, 5], np.float32))}
    environment = padded(SMALL, LARGE, [first, {"b": AgentStep(np.array([6, 7, 8], np.float32), 1.5)}])
    assert environment.specs["a"] == environment.specs["b"]
    spec = environment.specs["a"]
    assert spec.observation == {
        "observation": specs.BoundedArray((3,), np.float32, -1.0, 5.0),
        "action_mask": specs.BoundedArray((3,), np.int32, 0, 1),
    }
    assert spec.action == specs.DiscreteArray(3, dtype=np.int32)
    assert plain(environment.reset()) == {
        "a": {"observation": [1, 2, 0], "action_mask": [1, 1, 0]},
        "b": {"observation": [3, 4, 5], "action_mask": [1, 1, 1]},
    }
    steps = environment.step({"a": 1, "b": 2})
    assert plain(steps) == {"b": {"observation": [6, 7, 8], "action_mask": [1, 1, 1]}} and steps["b"].reward == 1.5


def test_parts_that_an_agent_lacks_and_masks_of_its_own():
    choice, mask = specs.DiscreteArray(4, dtype=np.int32), specs.BoundedArray((2,), np.int8, 0, 1)
    a = EnvironmentSpec({"card": choice, "action_mask": mask}, specs.DiscreteArray(2))
    hand = specs.Array((1,), np.float32)
    b = EnvironmentSpec({"card": specs.DiscreteArray(6, dtype=np.int32), "hand": hand}, LARGE.action)
    seen = {
        "a": AgentStep({"card": np.array(3, np.int32), "action_mask": np.array([0, 1], np.int8)}),
        "b": AgentStep({"card": np.array(5, np.int32), "hand": np.array([9], np.float32)}),
    }
    environment = padded(a, b, [seen])
    assert environment.specs["b"].observation["card"].num_values == 6
    assert plain(environment.reset()) == {
        "a": {"card": 3, "hand": [0], "action_mask": [0, 1, 0]},
        "b": {"card": 5, "hand": [9], "action_mask": [1, 1, 1]},
    }


def test_equal_actions_need_no_mask():
    own = specs.BoundedArray((2,), np.float32, -1.0, 1.0)
    seen = {"a": AgentStep(np.array([1, 2], np.float32))}
    environment = padded(SMALL._replace(action=own), LARGE._replace(action=own), [seen])
    assert environment.specs["a"] == EnvironmentSpec(specs.BoundedArray((3,), np.float32, -1.0, 5.0), own)
    assert environment.reset()["a"].observation.tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            SMALL._replace(action=specs.BoundedArray((2,), np.float32, -1, 1)),
            "only discrete actions can be padded, and agents have 3 discrete actions and float32.2,.: leave",
        ),
        (
            SMALL._replace(observation=specs.Array((2, 2), np.float32)),
            "the part 'observation' of observations cannot be padded: agents have float32.3,. and float32.2, 2.;",
        ),
    ],
)
def test_what_cannot_be_padded(other, message):
    with pytest.raises(CallboardError, match=message) as error:
        padded(LARGE, other)
    assert "\n" not in str(error.value)
