"""Environments with the `dm_env` interface whose timesteps are mappings by agent."""

import numpy as np
import pytest
from dm_env import specs
from scripted_agents import Counting, ScalarDiscount

from callboard.environments.multi_agent.dm_env_agents import DmEnvAgents
from callboard.errors import CallboardError


def shown(steps):
    return {
        agent: (step.observation.tolist(), step.reward, step.terminated, step.truncated, dict(step.info))
        for agent, step in steps.items()
    }


def test_an_episode():
    environment = DmEnvAgents(Counting(), "my:Counting")
    assert environment.agents == ("0", "1") and environment.is_over
    assert environment.specs["0"].observation == specs.Array((2,), np.float32)
    assert environment.specs["0"].action == specs.DiscreteArray(3, dtype=np.int32)
    assert shown(environment.reset()) == {
        "0": ([0, 0], 0, False, False, {}),
        "1": ([1, 0], 0, False, False, {"time": 0}),
    }
    assert shown(environment.step({"0": 0, "1": 2})) == {
        "0": ([0, 1], 1, False, False, {}),
        "1": ([1, 1], 3, False, False, {"time": 1}),
    }
    assert shown(environment.step({"0": 1, "1": 0})) == {
        "0": ([0, 2], 2, True, False, {}),
        "1": ([1, 2], 1, False, False, {"time": 2}),
    }
    assert not environment.is_over
    assert shown(environment.step({"1": 0})) == {"1": ([1, 3], 1, False, True, {"time": 3})}
    assert environment.is_over and environment.unwrapped.actions == [{0: 1, 1: 3}, {0: 2, 1: 1}, {1: 1}]
    assert environment.reset().keys() == {"0", "1"}


def test_one_discount_for_all_agents():
    environment = DmEnvAgents(ScalarDiscount(), "my:ScalarDiscount")
    environment.reset()
    for _ in range(3):
        steps = environment.step({"0": 0, "1": 0})
    assert [(step.terminated, step.truncated) for step in steps.values()] == [(True, False)] * 2


def test_other_discounts_are_refused():
    class Discounted(Counting):
        def step(self, actions):
            return super().step(actions)._replace(discount=0.9)

    environment = DmEnvAgents(Discounted(), "my:Discounted")
    environment.reset()
    with pytest.raises(CallboardError, match="^'step' of my:Discounted gives agent '0' the discount 0.9: with several"):
        environment.step({"0": 0, "1": 0})


def test_rewards_must_be_numbers():
    class NoReward(Counting):
        def step(self, actions):
            return super().step(actions)._replace(reward=None)

    environment = DmEnvAgents(NoReward(), "my:NoReward")
    environment.reset()
    with pytest.raises(CallboardError, match="gives agent '0' the reward None: it must be a number"):
        environment.step({"0": 0, "1": 0})


def test_tasks_pictures_and_states():
    environment = DmEnvAgents(Counting(), "my:Counting")
    environment.set_task("far")
    assert environment.unwrapped.task is None
    environment.reset()
    assert environment.unwrapped.task == "far"
    assert (environment.render() == 0).all()
    assert environment.state_size is None

    class Stated(Counting):
        set_task = render = None

        def state_spec(self):
            return specs.Array((1, 2), np.float64)

        def state(self):
            return np.array([[1.0, 2.0]])

    environment = DmEnvAgents(Stated(), "my:Stated")
    assert environment.state_size == 2 and environment.state().tolist() == [1, 2]
    with pytest.raises(CallboardError, match="^my:Stated cannot be set to a task: give it a method 'set_task'$"):
        environment.set_task(1)
    with pytest.raises(CallboardError, match="^my:Stated has no picture to show: it has no method 'render'$"):
        environment.render()
