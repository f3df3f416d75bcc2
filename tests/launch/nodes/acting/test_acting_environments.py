"""Environments of an experiment: seeds and slots of their own for every node that acts."""

import gymnasium
import numpy as np
import pytest
from dm_env import specs

from callboard.agents.impala import Impala
from callboard.environments import MultiAgentEnvironment
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_plan import make_plan
from callboard.launch.nodes.acting.acting_environments import make_environments, make_view
from callboard.specs import EnvironmentSpec


def first_observations(experiment, *arguments):
    environment = make_environments(experiment, *arguments)
    observation = environment.reset().observation
    environment.close()
    return observation


def test_environments_depend_on_run_role_slot_and_incarnation():
    experiment = Experiment(Impala(), "Pendulum-v1", seed=3)
    actors = first_observations(experiment, "actor", 0, 4)
    np.testing.assert_array_equal(first_observations(experiment, "actor", 2, 2), actors[2:])
    np.testing.assert_array_equal(first_observations(experiment, "actor", 0, 4), actors)
    for others in (
        first_observations(experiment, "evaluator", 0, 4),
        first_observations(experiment, "actor", 0, 4, 1),
        first_observations(Experiment(Impala(), "Pendulum-v1", seed=4), "actor", 0, 4),
    ):
        assert (others != actors).any(axis=1).all()


def test_options_reach_the_environments_and_evaluators_leave_out_those_for_training():
    pytest.importorskip("procgen")
    options = {"num_levels": 1, "start_level": 7, "distribution_mode": "easy"}
    experiment = Experiment(Impala(), "procgen:coinrun", env_options=options)
    actors = first_observations(experiment, "actor", 0, 4)
    assert (actors == actors[0]).all()
    evaluators = first_observations(experiment, "evaluator", 0, 4)
    assert (evaluators[1:] != evaluators[0]).any(axis=(1, 2, 3)).all()


class Choices(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, count):
        self.action_space = gymnasium.spaces.Discrete(count)


class AgentChoices(MultiAgentEnvironment):
    agents = ("a",)

    def __init__(self, count):
        self.specs = {"a": EnvironmentSpec(specs.Array((1,), np.float32), specs.DiscreteArray(count))}

    def reset(self, seed=None):
        raise NotImplementedError

    def step(self, actions):
        raise NotImplementedError


@pytest.mark.parametrize("kind", [Choices, AgentChoices])
def test_actors_have_the_spaces_of_the_check(kind):
    def create(actor):
        return kind(3 if actor is None else 2)

    experiment = Experiment("ppo", env=create, envs_per_actor=1)
    plan = make_plan(experiment, experiment.agent_specs())
    make_view(experiment, "evaluator", 0, 1, plan, lambda policy, rng: policy)[0].close()
    with pytest.raises(CallboardError, match="^the environments '.*' of this actor and of the check of the run"):
        make_view(experiment, "actor", 0, 1, plan, lambda policy, rng: policy)
