"""The policies that an evaluator plays with."""

import threading

import pytest

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.launch.experiment import Experiment, Run
from callboard.launch.nodes.evaluation_players import evaluation_mode, make_evaluation_players
from callboard.launch.nodes.node import NodeContext
from callboard.launch.nodes.players import AllPlayers, OnePlayer
from callboard.launch.policy_settings import Snapshots
from callboard.launch.run_directory.layout import RunDirectory


def players_of(experiment, path):
    context = NodeContext("evaluator/0", "e", threading.Event(), lambda kind, content: None, None)
    return make_evaluation_players(Run.of(experiment, experiment.checked(), RunDirectory(path)), {}, context)


def test_the_policies_of_the_mapping_of_evaluations_play(tmp_path):
    experiment = Experiment(
        Ppo(),
        "echo_agents:Echo",
        env_options={"alike": True},
        policies={"left": {}, "right": {}, "past": Snapshots("left", keep=2)},
        mapping={"left": "left", "right": "right"},
        evaluation_mapping={"left": "left", "right": "past"},
    )
    players, learned, opponents = players_of(experiment, tmp_path)
    assert isinstance(players, AllPlayers) and list(players.policies) == ["left", "past/0", "past/1"]
    assert list(learned) == ["left"] and players.policies["left"][0] is learned["left"]
    assert opponents is not None and opponents.numbers == {}


def test_one_policy_plays_where_the_environment_has_one_agent(tmp_path):
    players, learned, opponents = players_of(Experiment(Ppo(), "CartPole-v1"), tmp_path)
    assert isinstance(players, OnePlayer) and learned == {"": players.policy} and opponents is None


@pytest.mark.parametrize(
    ("agent", "setting", "mode"),
    [(Ppo(), "greedy", "evaluate"), (Ppo(), "sampled", "sample"), (Apex(), "sampled", "evaluate")],
)
def test_a_policy_without_a_distribution_takes_the_best_actions(agent, setting, mode):
    experiment = Experiment(Ppo(), "CartPole-v1", evaluation_mode=setting)
    assert evaluation_mode(experiment, agent) == mode
