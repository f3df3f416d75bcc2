"""`callboard graph`: the nodes of a run and their calls, without starting one."""

import pytest

from callboard.cli.command import main


def test_graph_shows_who_calls_whom(capsys):
    assert main(["graph", "impala", "--env", "CartPole-v1", "--actors", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "actor x 8  ->  coordinator, learner, replay" in lines
    assert "learner x 1  ->  coordinator, replay" in lines


@pytest.mark.parametrize(
    "options, message",
    [
        (["--actors", "0"], "a run without actors learns from recorded episodes"),
        (["--learner", "2"], "did you mean '--learners'?"),
        (["--env-options.gravity", "3"], "gravity"),
    ],
)
def test_a_graph_of_a_wrong_experiment_is_refused_in_one_line(options, message, capsys):
    assert main(["graph", "impala", "--env", "CartPole-v1", *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.slow("daily")
def test_each_policy_that_learns_has_nodes_of_its_own(capsys):
    policies = ["--policies", "{left: {}, right: {name: apex}}"]
    assert main(["graph", "impala", "--env", "echo_agents:Echo", *policies]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "learner/left x 1  ->  coordinator, replay/left" in lines
    assert "actor x 2  ->  coordinator, learner/left, learner/right, replay/left, replay/right" in lines


def test_central_inference_has_nodes_between_actors_and_replay(capsys):
    options = ["--actors", "4", "--inference", "central", "--inference-nodes", "2", "--evaluator", "false"]
    assert main(["graph", "impala", "--env", "CartPole-v1", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "actor x 4  ->  coordinator, inference" in lines
    assert "inference x 2  ->  coordinator, learner, replay" in lines
    assert not [line for line in lines if line.startswith("evaluator")]
