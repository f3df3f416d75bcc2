"""Policies of other runs as opponents."""

import pytest
from echo_agents import Echo

from callboard.agents.ppo import Ppo
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_settings import TrainedPolicy
from callboard.launch.run import run
from callboard.launch.saved.saved_policies import check_trained_policies, read_trained

PPO = Ppo(unroll_length=8, batch_size=8, minibatches=2, epochs=1)


def echo(path, **settings):
    defaults = {"actors": 1, "envs_per_actor": 4, "max_steps": 200, "evaluate_every": 100}
    defaults |= {"evaluation_episodes": 2, "evaluation_envs": 2, "run_dir": path}
    return Experiment(PPO, "echo_agents:Echo", **{**defaults, **settings})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run with the policies `left` and `right`."""
    path = tmp_path_factory.mktemp("saved") / "run"
    run(echo(path, policies={"left": {}, "right": {}}), "inline")
    return path


@pytest.mark.slow
def test_a_saved_policy_plays_in_another_run(saved, tmp_path):
    policies = {"left": {}, "right": {"weights": f"{saved}/policies/right@best"}}
    assert run(echo(tmp_path / "run", policies=policies), "inline").exit_code == 0
    assert not (tmp_path / "run" / "policies" / "right").exists()


@pytest.mark.slow
@pytest.mark.parametrize("which", ["best", "latest"])
def test_the_weights_are_those_that_were_saved(saved, which):
    trained = read_trained(TrainedPolicy(f"{saved}/policies/left@{which}"))
    spec = Echo().specs["left"]
    assert (trained.spec.observation, trained.spec.action) == (spec.observation, spec.action) and trained.values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("{saved}/policies/left@best", "the policy 'right' cannot play with .*, which was trained for .*: its agents"),
        ("{saved}@best", "has several policies; name one of .*/policies/left, "),
        ("{saved}/policies/middle@best", "there is no run in"),
        ("{saved}/policies/right@7777", "7777"),
    ],
)
def test_what_cannot_play_is_refused_in_one_line(saved, tmp_path, weights, message):
    experiment = echo(tmp_path / "run", policies={"left": {}, "right": {"weights": weights.format(saved=saved)}})
    with pytest.raises(CallboardError, match=message) as error:
        check_trained_policies(experiment, experiment.agent_specs())
    assert "\n" not in str(error.value)
