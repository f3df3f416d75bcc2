"""The saved and the current policies of a run with several, as they play in evaluations."""

import numpy as np
import pytest

from callboard.agents.ppo import Ppo
from callboard.agents.variables.weight_names import weight_names
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_settings import Snapshots
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.policy_weights import save_policy
from callboard.launch.trained.evaluation import current_players, saved_players


@pytest.fixture
def experiment():
    return Experiment(
        Ppo(),
        "echo_agents:Echo",
        env_options={"alike": True},
        policies={"left": {}, "past": Snapshots("left", keep=3)},
        mapping={"left": "left", "right": "past"},
    )


@pytest.fixture
def directory(tmp_path):
    found = RunDirectory(tmp_path)
    of_policy = found.of_policy("left")
    of_policy.create()
    of_policy.snapshots.mkdir()
    return found


def policy_with(experiment, value):
    """A policy of `left` whose weights have all this value, and its layout."""
    layout = check_experiment(experiment).policies["left"]
    policy = experiment.agent.make_policy(experiment.agent.make_networks(layout), "evaluate")
    for variable in policy.variables:
        variable.assign(np.full(variable.shape, value))
    return policy


def values_of(players):
    return {name: policy.variables[0].numpy().flat[0] for name, (policy, _) in players.policies.items()}


@pytest.mark.slow("daily")
def test_the_best_policies_play_against_the_snapshots_that_there_are(experiment, directory):
    left = directory.of_policy("left")
    save_policy(left.best_policy, policy_with(experiment, 5), mean_return=1.0, learner_step=10)
    for number in (3, 4):
        save_policy(left.snapshot("past", number), policy_with(experiment, number), environment_steps=number)
    players, file = saved_players(experiment, directory, "best")
    assert file == left.best_policy and values_of(players) == {"left": 5, "past/0": 3, "past/1": 4}
    rng = np.random.default_rng(0)
    assert {players.choose("past", rng) for _ in range(30)} == {"past/0", "past/1"}
    with pytest.raises(CallboardError, match="has no checkpoint latest; choose from best"):
        saved_players(experiment, directory, "latest")


def test_a_run_without_snapshots_is_refused(experiment, directory):
    policy = policy_with(experiment, 2)
    run = Run.of(experiment, check_experiment(experiment), directory)
    weights = dict(zip(weight_names(policy, policy.variables), [v.numpy() for v in policy.variables], strict=True))
    with pytest.raises(CallboardError, match="'past' has no snapshots in .*: train for longer, or leave it out"):
        current_players(experiment, run, {"left": weights})
    save_policy(directory.of_policy("left").snapshot("past", 0), policy_with(experiment, 1), environment_steps=0)
    assert values_of(current_players(experiment, run, {"left": weights})) == {"left": 2, "past/0": 1}


def test_a_part_of_a_run_is_refused(experiment, directory):
    with pytest.raises(CallboardError, match="has one of the policies of a run; evaluate the whole run"):
        saved_players(experiment, directory.of_policy("left"), "best")
