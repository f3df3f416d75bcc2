"""Which policies play for which agents, and with which layouts."""

import dataclasses

import numpy as np
import pytest
from echo_agents import Echo

from callboard.agents.ppo import Ppo
from callboard.environments.multi_agent.policy_slots import parse_mapping
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_plan import MemberMapping, make_plan, members_of
from callboard.launch.experiments.policy_settings import RandomPolicy, Snapshots, TrainedPolicy

SPECS = Echo(alike=True).specs
SNAPSHOTS = {"main": Ppo(), "past": Snapshots("main", keep=2), "other": RandomPolicy()}


def plan(evaluation=False, specs=SPECS, **settings):
    return make_plan(Experiment(Ppo(), "echo_agents:Echo", **settings), specs, evaluation)


def test_without_policies_all_agents_share_one():
    found = plan()
    assert list(found.policies) == list(found.learning) == ["shared"]
    assert found.slots["shared"].agents == ("left", "right")


def test_the_layout_of_a_policy_has_a_slot_per_environment_and_agent():
    experiment = Experiment(Ppo(), "echo_agents:Echo", envs_per_actor=3)
    found = make_plan(experiment, SPECS)
    layout = found.layout("shared", experiment.layout(SPECS["left"]))
    assert (layout.envs_per_actor, layout.agents_per_env) == (6, 2)
    assert layout.spec == SPECS["left"]


def test_evaluations_may_have_a_mapping_of_their_own():
    settings = {
        "policies": SNAPSHOTS,
        "mapping": {"left": "main", "right": {"main": 1, "past": 1}},
        "evaluation_mapping": {"left": "main", "right": "other"},
    }
    assert set(plan(**settings).slots) == {"main", "past"}
    evaluated = plan(evaluation=True, **settings)
    assert set(evaluated.slots) == {"main", "other"} and evaluated.slots["main"].agents == ("left",)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mapping": {"*": "mian"}}, "did you mean 'main'"),
        ({"mapping": {"left": "main"}}, "agent 'right' has no policy"),
        ({"mapping": {"lft": "main", "*": "main"}}, "did you mean 'left'"),
        ({}, "agent 'left' has no policy"),
    ],
)
def test_mappings_that_do_not_fit(settings, message):
    with pytest.raises(CallboardError, match=message):
        plan(policies=SNAPSHOTS, **settings)


def test_agents_of_a_policy_must_have_the_same_spaces():
    with pytest.raises(CallboardError, match="policy 'shared' cannot play for both 'left' and 'right'"):
        plan(specs=Echo().specs)


def test_members_of_snapshots():
    policies = {**SNAPSHOTS, "saved": TrainedPolicy("run")}
    assert members_of(policies) == {"past": ["past/0", "past/1"]}


def test_a_member_plays_for_its_policy():
    mapping = parse_mapping(
        {"left": "main", "*": {"main": 1, "past": 1}}, ("left", "right"), {"main": None, "past": None}
    )
    chosen = []

    def choose(policy, rng):
        chosen.append(policy)
        return f"{policy}/{rng.integers(2)}"

    members = MemberMapping(mapping, {"past": ["past/0", "past/1"]}, choose)
    assert members.policies_of == {"left": ("main",), "right": ("main", "past/0", "past/1")}
    rng = np.random.default_rng(0)
    assert {members("left", episode, rng) for episode in range(9)} == {"main"} and not chosen
    assert {members("right", episode, rng) for episode in range(40)} == {"main", "past/0", "past/1"}
    assert set(chosen) == {"past"}


def test_a_run_part_has_the_settings_of_its_policy():
    experiment = Experiment(Ppo(), "echo_agents:Echo", policies={"left": Ppo(epochs=2), "right": Ppo(epochs=3)})
    part = experiment.for_policy(experiment.policies["right"], dataclasses.replace(experiment).layout(SPECS["right"]))
    assert part.agent.epochs == 3 and part.policies == {} and part.mapping is None and part.train == ()
