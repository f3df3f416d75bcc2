"""The policies of an evaluator: their weights come together, and the best of each is kept."""

import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.ppo import Ppo
from callboard.agents.variables.weights import pack_weights
from callboard.data import Version
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_settings import Snapshots
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.nodes.evaluation.evaluated_policies import EvaluatedPolicies, make_players, mean_step
from callboard.launch.nodes.node import NodeContext, Unreachable
from callboard.launch.run_directory.best_policy import BestPolicy
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.policy_weights import read_policy


class Weights(tf.Module):
    """A policy with one variable."""

    def __init__(self):
        super().__init__()
        self.value = tf.Variable([0.0, 0.0])

    @property
    def variables(self):
        return [self.value]


class Learner:
    """A handle of a learner, in this process."""

    def __init__(self, name, step):
        self.name, self.step, self.final, self.answers = f"learner/{name}/0", step, None, True

    def client(self, timeout):
        return self

    def get_variables(self, have, most):
        self._answer()
        return None if have == (0, self.step) else ((0, self.step), pack_weights([np.full(2, self.step, np.float32)]))

    def final_version(self):
        self._answer()
        return self.final

    def _answer(self):
        if not self.answers:
            raise Unreachable("it restarts")


@pytest.fixture
def learners():
    return {"left": Learner("left", 3), "right": Learner("right", 6)}


@pytest.fixture
def policies():
    return {"left": Weights(), "right": Weights()}


@pytest.fixture
def evaluated(tmp_path, learners, policies):
    experiment = Experiment(Ppo(), "echo_agents:Echo", policies={"left": {}, "right": {}})
    run = Run.of(experiment, check_experiment(experiment), RunDirectory(tmp_path))
    for name in run.policies:
        run.directory.of_policy(name).create()
    context = NodeContext("evaluator/0", "e", threading.Event(), lambda kind, content: None, None)
    return EvaluatedPolicies(run, policies, learners, context)


def test_the_weights_of_all_policies_are_fetched(evaluated, policies):
    assert evaluated.versions == []
    assert evaluated.fetch() and evaluated.versions == [Version(0, 3), Version(0, 6)]
    assert [policy.value.numpy()[0] for policy in policies.values()] == [3, 6]
    assert mean_step(evaluated.versions) == 4 and mean_step([]) == 0


def test_no_weights_are_applied_while_a_learner_does_not_answer(evaluated, learners, policies):
    learners["right"].answers = False
    assert not evaluated.fetch() and evaluated.versions == []
    assert not any(policy.value.numpy().any() for policy in policies.values())
    learners["right"].answers = True
    assert evaluated.fetch() and policies["left"].value.numpy()[0] == 3


def test_the_final_versions_are_those_of_all_learners(evaluated, learners):
    learners["left"].final = (0, 3)
    assert evaluated.final_versions() is None
    learners["right"].final = (0, 6)
    assert evaluated.final_versions() == [Version(0, 3), Version(0, 6)]
    learners["left"].answers = False
    assert evaluated.final_versions() is None


def test_the_best_of_each_policy_is_kept_in_its_directory(evaluated, tmp_path):
    assert evaluated.mean_return() == -np.inf
    evaluated.fetch()
    evaluated.save_best(7.5)
    assert evaluated.mean_return() == 7.5
    for name, step in (("left", 3), ("right", 6)):
        saved = read_policy(BestPolicy(RunDirectory(tmp_path).of_policy(name)).path())
        assert saved.values[0].tolist() == [step, step] and saved.further["learner_step"] == step


def test_where_one_policy_cannot_be_saved_the_best_of_all_are_unchanged(evaluated, learners, tmp_path):
    evaluated.fetch()
    evaluated.save_best(7.5)
    learners["left"].step = learners["right"].step = 9
    evaluated.fetch()
    shutil.rmtree(RunDirectory(tmp_path).of_policy("right").checkpoints)
    with pytest.raises(FileNotFoundError):
        evaluated.save_best(8.5)
    left = BestPolicy(RunDirectory(tmp_path).of_policy("left"))
    assert left.mean_return() == 7.5 and read_policy(left.path()).further["learner_step"] == 3


def players_of(experiment, path):
    context = NodeContext("evaluator/0", "e", threading.Event(), lambda kind, content: None, None)
    return make_players(Run.of(experiment, check_experiment(experiment), RunDirectory(path)), {}, context)


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
    assert list(players.policies) == ["left", "past/0", "past/1"]
    assert list(learned) == ["left"] and players.policies["left"][0] is learned["left"]
    assert opponents.numbers == {}


def test_one_policy_plays_where_the_environment_has_one_agent(tmp_path):
    players, learned, opponents = players_of(Experiment(Ppo(), "CartPole-v1"), tmp_path)
    assert list(players.policies) == [""] and learned == {"": players.policies[""][0]}
    assert opponents.wait() and opponents.numbers == {}, "there is nothing to wait for"
