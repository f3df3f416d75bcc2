"""The policies that an evaluator plays with."""

import threading

import pytest

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.launch.experiment import Experiment
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.policy_settings import Snapshots
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.nodes.evaluation.evaluation_setup import OnePolicySetup, SeveralPoliciesSetup
from callboard.launch.nodes.evaluation.evaluator_setup import evaluation_mode, make_evaluator_setup
from callboard.launch.nodes.node import NodeContext
from callboard.launch.run_directory.layout import RunDirectory


def setup_of(experiment, path):
    context = NodeContext("evaluator/0", "e", threading.Event(), lambda kind, content: None, None)
    return make_evaluator_setup(Run.of(experiment, check_experiment(experiment), RunDirectory(path)), {}, context)


def test_the_policies_of_the_mapping_of_evaluations_play(tmp_path):
    experiment = Experiment(
        Ppo(),
        "echo_agents:Echo",
        env_options={"alike": True},
        policies={"left": {}, "right": {}, "past": Snapshots("left", keep=2)},
        mapping={"left": "left", "right": "right"},
        evaluation_mapping={"left": "left", "right": "past"},
    )
    setup, learned, opponents = setup_of(experiment, tmp_path)
    assert isinstance(setup, SeveralPoliciesSetup) and list(setup.policies) == ["left", "past/0", "past/1"]
    assert list(learned) == ["left"] and setup.policies["left"][0] is learned["left"]
    assert opponents is not None and opponents.numbers == {}


def test_one_policy_plays_where_the_environment_has_one_agent(tmp_path):
    setup, learned, opponents = setup_of(Experiment(Ppo(), "CartPole-v1"), tmp_path)
    assert isinstance(setup, OnePolicySetup) and learned == {"": setup.policy} and opponents is None


@pytest.mark.parametrize(
    ("agent", "setting", "mode"),
    [(Ppo(), "greedy", "evaluate"), (Ppo(), "sampled", "sample"), (Apex(), "sampled", "evaluate")],
)
def test_a_policy_without_a_distribution_takes_the_best_actions(agent, setting, mode):
    experiment = Experiment(Ppo(), "CartPole-v1", evaluation_mode=setting)
    assert evaluation_mode(experiment, agent) == mode
