"""Compiled policies act for their slots, with a seed of their incarnation."""

import dataclasses

from callboard.agents.agent import Agent
from callboard.environments import spec
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.acting.acting_environments import make_environments
from callboard.launch.nodes.acting.compiled_policies import compile_policy

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
