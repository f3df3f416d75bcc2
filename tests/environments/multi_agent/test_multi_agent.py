"""The interface of environments with several agents: what an environment need not define, and wrappers."""

import numpy as np
import pytest
from dm_env import specs
from scripted_agents import ScriptedAgents, seen

from callboard.environments import MultiAgentEnvironment, MultiAgentWrapper
from callboard.environments.multi_agent.multi_agent import absent_observation
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec, MultiDiscreteArray


class Least(MultiAgentEnvironment):
    agents = ("a",)
    specs = {}

    def reset(self, seed=None):
        return {}

    def step(self, actions):
        return {}


def test_what_an_environment_need_not_define():
    environment = Least()
    assert environment.is_over and environment.state_size is None and environment.frames_per_second is None
    assert environment.unwrapped is environment
    environment.close()
    for call, message in (
        (environment.state, "Least has no state: override 'state' and 'state_size'"),
        (environment.render, "Least has no picture to show: override 'render'"),
        (lambda: environment.set_task(1), "Least cannot be set to a task: override 'set_task', or leave the task"),
    ):
        with pytest.raises(CallboardError, match=f"^{message}"):
            call()


def test_wrappers_forward_everything():
    environment = ScriptedAgents([{"a": seen(1)}, {"a": seen(2, 3.0)}])
    wrapper = MultiAgentWrapper(environment)
    assert (wrapper.agents, wrapper.specs) == (environment.agents, environment.specs)
    assert wrapper.is_over
    assert wrapper.reset(4)["a"].observation == [1] and environment.seeds == [4]
    assert not wrapper.is_over
    assert wrapper.step({"a": 5})["a"].reward == 3 and environment.taken == [{"a": 5}]
    assert wrapper.is_over
    wrapper.set_task("hard")
    assert environment.tasks == ["hard"]
    assert wrapper.state_size == 1 and wrapper.state().tolist() == [0]
    assert wrapper.frames_per_second == 5 and wrapper.render().shape == (4, 6, 3)
    assert wrapper.unwrapped is environment
    wrapper.close()
    assert environment.closed == 1


def test_absent_observations():
    observation = (specs.Array((2,), np.float32), specs.DiscreteArray(4))
    mask = specs.BoundedArray((3,), np.int8, 0, 1)
    spec = EnvironmentSpec({"observation": observation, "action_mask": mask}, specs.DiscreteArray(3))
    absent = absent_observation(spec)
    assert absent["observation"][0].tolist() == [0, 0] and absent["observation"][1] == 0
    assert absent["action_mask"].tolist() == [1, 1, 1] and absent["action_mask"].dtype == np.int8
    assert absent_observation(spec, legal="first")["action_mask"].tolist() == [1, 0, 0]


def test_masks_of_several_choices():
    def mask(*sizes):
        parts = tuple(specs.BoundedArray((size,), np.int8, 0, 1) for size in sizes)
        return {"action_mask": parts[0] if len(parts) == 1 else parts, "observation": specs.Array((), np.float32)}

    action = (specs.DiscreteArray(2), MultiDiscreteArray([1, 3]))
    joined = absent_observation(EnvironmentSpec(mask(6), action), legal="first")["action_mask"]
    assert joined.tolist() == [1, 0, 1, 1, 0, 0]
    parts = absent_observation(EnvironmentSpec(mask(2, 1, 3), action), legal="first")["action_mask"]
    assert [part.tolist() for part in parts] == [[1, 0], [1], [1, 0, 0]]
