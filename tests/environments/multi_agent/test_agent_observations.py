"""What is added to agents' observations: their index, and a state."""

import numpy as np
import pytest
from dm_env import specs
from scripted_agents import SPEC, ScriptedAgents, seen

from callboard.environments.multi_agent.agent_observations import AgentIndices, ObservedState, StateLeaves
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec, MultiDiscreteArray

MASK = specs.BoundedArray((3,), np.int8, 0, 1)
MASKED = EnvironmentSpec({"observation": SPEC.observation, "action_mask": MASK}, specs.DiscreteArray(3))


def masked(number, mask):
    step = seen(number)
    return step._replace(observation={"observation": step.observation, "action_mask": np.array(mask, np.int8)})


def plain(steps):
    return {
        agent: {key: value.tolist() for key, value in step.observation.items()}
        if isinstance(step.observation, dict)
        else step.observation.tolist()
        for agent, step in steps.items()
    }


def test_the_index_of_an_agent():
    episode = [{"a": seen(1), "b": seen(11)}, {"b": seen(12)}]
    environment = AgentIndices(ScriptedAgents(episode))
    spec = environment.specs["b"]
    assert spec.observation == {
        "observation": SPEC.observation,
        "agent_index": specs.BoundedArray((2,), np.float32, 0, 1),
    }
    assert spec == environment.specs["a"] and spec.action == SPEC.action and spec.encoding.spec() == spec
    assert plain(environment.reset()) == {
        "a": {"observation": [1], "agent_index": [1, 0]},
        "b": {"observation": [11], "agent_index": [0, 1]},
    }
    assert plain(environment.step({"a": 0, "b": 0})) == {"b": {"observation": [12], "agent_index": [0, 1]}}


def test_an_action_mask_stays_at_the_top():
    environment = ScriptedAgents([{"a": masked(1, [0, 1, 1])}], specs={"a": MASKED, "b": MASKED})
    indexed = AgentIndices(environment)
    assert list(indexed.specs["a"].observation) == ["observation", "action_mask", "agent_index"]
    assert plain(indexed.reset())["a"] == {"observation": [1], "action_mask": [0, 1, 1], "agent_index": [1, 0]}


def test_the_state_of_the_environment():
    environment = StateLeaves(ScriptedAgents([{"a": seen(1), "b": seen(2)}, {"a": seen(2)}]))
    assert environment.specs["a"].observation["state"] == specs.Array((1,), np.float32)
    assert plain(environment.reset()) == {
        "a": {"observation": [1], "state": [1]},
        "b": {"observation": [2], "state": [1]},
    }
    assert plain(environment.step({"a": 0, "b": 0})) == {"a": {"observation": [2], "state": [0]}}


def test_states_of_all_observations():
    episode = [{"a": seen(1), "b": seen(11)}, {"b": seen(12)}]
    environment = StateLeaves(ObservedState(ScriptedAgents(episode), with_actions=False))
    assert plain(environment.reset())["a"]["state"] == [1, 11]
    assert plain(environment.step({"a": 0, "b": 0}))["b"]["state"] == [0, 12]


def test_states_of_all_observations_and_actions():
    observation = {
        "action_mask": MASK,
        "choice": specs.DiscreteArray(2),
        "choices": MultiDiscreteArray([2, 3]),
        "pixels": specs.BoundedArray((1, 2), np.uint8, 0, 255),
        "speed": specs.Array((), np.float32),
    }
    action = (specs.DiscreteArray(3), specs.BoundedArray((2,), np.float32, -1, 1))
    spec = EnvironmentSpec(observation, action)
    values = {
        "action_mask": np.array([0, 1, 1], np.int8),
        "choice": np.int32(1),
        "choices": np.array([1, 2], np.int32),
        "pixels": np.array([[0, 51]], np.uint8),
        "speed": np.float32(-3),
    }
    step = seen(0)._replace(observation=values)
    environment = ObservedState(ScriptedAgents([{"a": step}, {"a": step}], agents=("a",), specs={"a": spec}), True)
    flat = [0, 1, 0, 1, 0, 0, 1, 0, 0.2, -3]
    assert environment.state_size == len(flat) + 5
    environment.reset()
    np.testing.assert_allclose(environment.state(), [*flat, 0, 0, 0, 0, 0])
    before = environment.state()
    environment.step({"a": (2, np.array([0.5, -0.5], np.float32))})
    np.testing.assert_allclose(environment.state(), [*flat, 0, 0, 1, 0.5, -0.5])
    assert before[-1] == 0 and environment.state().dtype == np.float32


def test_mistakes():
    class Stateless(ScriptedAgents):
        state_size = None

    with pytest.raises(CallboardError, match="^the environment has no state of its own, or none of a known size"):
        StateLeaves(Stateless())
    spec = EnvironmentSpec({"state": SPEC.observation}, SPEC.action)
    with pytest.raises(CallboardError, match="^the observation of agent 'a' has a part 'state' already: leave"):
        StateLeaves(ScriptedAgents(specs={"a": spec, "b": spec}))

    class Wrong(ScriptedAgents):
        state_size = 3

    for state in (np.zeros(1), None, "abc", {}, np.array([1, np.nan, 0]), [1, 2, np.inf]):
        wrong = Wrong([{"a": seen(1)}])
        wrong.state = lambda given=state: given
        with pytest.raises(CallboardError, match="^the environment's state is .*: it must be 3 finite numbers$"):
            StateLeaves(wrong).reset()
