"""Environments and policies of an experiment: seeds and slots of their own for every node that acts."""

import dataclasses

import numpy as np
import pytest

from callboard.agents.agent import Agent
from callboard.agents.impala import Impala
from callboard.environments import spec
from callboard.launch.experiment import Experiment
from callboard.launch.nodes.acting.acting_setup import compile_policy, make_environments


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


MADE: list[tuple[object, str]] = []
"""What policies were made with."""


@dataclasses.dataclass(frozen=True)
class SlotsAndSeeds(Agent):
    """An agent, and its policy, whose action is the slot and whose extras are the seed."""

    def check(self, layout): ...
    def make_networks(self, layout): ...
    def make_replay(self, layout): ...
    def make_learner(self, networks, strategy, layout): ...

    def make_policy(self, networks, mode):
        MADE.append((networks, mode))
        return self

    def initial_state(self, batch_size):
        return ()

    def __call__(self, timestep, state, slot, seed):
        return slot, {"seed": seed}, state


def test_a_policy_acts_for_its_slots_with_a_seed_of_its_incarnation():
    agent = SlotsAndSeeds()
    experiment = Experiment(agent, "CartPole-v1", seed=3)
    layout = experiment.acting_layout()
    assert layout.spec == spec("CartPole-v1")
    timestep = make_environments(experiment, "actor", 0, 3).reset()
    seeds = []
    for slot, incarnation in ((6, 0), (6, 0), (6, 1), (9, 0)):
        policy = compile_policy(experiment, layout, "networks", "sample", slot, 3, incarnation)
        action, extras = policy(timestep)
        assert action.tolist() == [slot, slot + 1, slot + 2]
        seeds.append(tuple(extras["seed"].tolist()))
    assert MADE[0] == ("networks", "sample")
    assert seeds[0] == seeds[1] and len(set(seeds)) == 3
