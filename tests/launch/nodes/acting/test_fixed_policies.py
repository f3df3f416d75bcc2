"""Policies that have weights but do not learn, as nodes build them."""

import threading

from callboard.agents.ppo import Ppo
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_plan import make_plan
from callboard.launch.experiments.policy_settings import RandomPolicy, Snapshots, TrainedPolicy, policy_setting
from callboard.launch.experiments.settings import plain
from callboard.launch.nodes.acting.fixed_policies import fetch_trained_agents, make_fixed_policies
from callboard.launch.nodes.node import NodeContext, Unreachable

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

    fixed = make_fixed_policies(experiment, make_plan(experiment, experiment.agent_specs()), {}, mode_of)
    assert list(fixed) == ["past/0", "past/1"] and seen == [SMALL, SMALL]
    (one, layout), (other, _) = fixed.values()
    assert layout.envs_per_actor == 4 and layout.spec.observation.shape == (3,)
    assert [value.shape for value in one.variables] == [value.shape for value in other.variables]
    assert not {id(value) for value in one.variables} & {id(value) for value in other.variables}, "each has its own"


def test_policies_that_do_not_play_are_not_built():
    policies = {"left": SMALL, "right": SMALL, "past": Snapshots("left")}
    mapping = {"left": "left", "right": "right"}
    experiment = Experiment(Ppo(), "echo_agents:Echo", policies=policies, mapping=mapping)
    plan = make_plan(experiment, experiment.agent_specs())
    assert make_fixed_policies(experiment, plan, {}, lambda agent: "evaluate") == {}


class Learner:
    """A handle of a learner in this process, which first does not answer and then gives these agents, in turn."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def client(self, timeout):
        return self

    def get_trained_agents(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            raise Unreachable("it starts")
        return answer


def plan_with_saved():
    experiment = Experiment(Ppo(), "echo_agents:Echo", policies={"left": SMALL, "right": TrainedPolicy("far/away")})
    return make_plan(experiment, experiment.agent_specs())


def test_agents_of_saved_policies_come_from_the_learner_that_serves_them():
    context = NodeContext("actor/0", "a", threading.Event(), lambda kind, content: None, None)
    saved = Ppo(unroll_length=3, frame_stack=2)
    learners = [Learner({}), Learner(None, {}, {"right": plain(policy_setting(saved))})]
    assert fetch_trained_agents(plan_with_saved(), learners, context) == {"right": saved}


def test_waiting_for_saved_policies_ends_with_the_run():
    context = NodeContext("actor/0", "a", threading.Event(), lambda kind, content: None, None)
    context.stop.set()
    assert fetch_trained_agents(plan_with_saved(), [Learner({})], context) is None
