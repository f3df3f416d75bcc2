"""Policies that have weights but do not learn, as nodes build them."""

from callboard.agents.ppo import Ppo
from callboard.launch.experiment import Experiment
from callboard.launch.nodes.frozen_policies import make_frozen_policies
from callboard.launch.policy_settings import RandomPolicy, Snapshots

SMALL = Ppo(unroll_length=8)


def test_snapshots_have_a_policy_for_each_member():
    policies = {"left": SMALL, "past": Snapshots("left", keep=2), "other": RandomPolicy()}
    experiment = Experiment(
        Ppo(),
        "echo_agents:Echo",
        env_options={"alike": True},
        policies=policies,
        mapping={"left": "left", "right": {"past": 1, "other": 1}},
        envs_per_actor=4,
    )
    seen = []

    def mode_of(agent):
        seen.append(agent)
        return "evaluate"

    frozen = make_frozen_policies(experiment, experiment.plan(), mode_of)
    assert list(frozen) == ["past/0", "past/1"] and seen == [SMALL, SMALL]
    (one, layout), (other, _) = frozen.values()
    assert layout.envs_per_actor == 4 and layout.spec.observation.shape == (3,)
    assert [value.shape for value in one.variables] == [value.shape for value in other.variables]
    assert not {id(value) for value in one.variables} & {id(value) for value in other.variables}, "each has its own"


def test_policies_that_do_not_play_are_not_built():
    policies = {"left": SMALL, "right": SMALL, "past": Snapshots("left")}
    mapping = {"left": "left", "right": "right"}
    experiment = Experiment(Ppo(), "echo_agents:Echo", policies=policies, mapping=mapping)
    assert make_frozen_policies(experiment, experiment.plan(), lambda agent: "evaluate") == {}
