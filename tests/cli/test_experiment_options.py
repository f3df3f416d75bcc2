"""Options that define an experiment: what belongs to whom, and runs that are resumed."""

import re

import pytest

from callboard.cli.command import main
from callboard.cli.experiment_options import (
    check_option_names,
    define_experiment,
    experiment_help,
    experiment_parser,
    parse_arguments,
    redefine_experiment,
    split_options,
)
from callboard.errors import CallboardError
from callboard.launch.experiments.settings import write_experiment


@pytest.fixture
def run_dir(tmp_path):
    experiment = define_experiment("impala", None, ["--env", "CartPole-v1", "--seed", "5"]).experiment()
    write_experiment(experiment, tmp_path / "experiment.yaml")
    return str(tmp_path)


def test_the_agent_comes_first_and_settings_are_left_to_others():
    parser = experiment_parser("train", "Trains an agent.")
    known, agent, options = parse_arguments(parser, ["impala", "--seed", "3", "--recipe", "x"])
    assert (agent, known.recipe, options) == ("impala", ["x"], ["--seed", "3"])
    known, agent, options = parse_arguments(parser, ["--recipe", "x", "--seed=3"])
    assert (agent, known.recipe, options) == (None, ["x"], ["--seed=3"])


def test_options_override_the_recipe_and_another_agent_drops_its_hyperparameters():
    settings = define_experiment(None, ["impala-cartpole"], ["--seed", "8"])
    assert settings.agent == "impala" and settings.of_run["seed"] == 8 and settings.of_agent
    assert define_experiment("ppo", ["impala-cartpole"], []).of_agent == {}


def test_a_resumed_run_has_the_settings_of_its_directory_changed_by_options(run_dir):
    settings = redefine_experiment(None, None, ["--run-dir", run_dir, "--max-steps", "7"])
    assert (settings.of_run["seed"], settings.of_run["max_steps"]) == (5, 7)
    assert redefine_experiment("impala", None, [f"--run_dir={run_dir}"]).agent == "impala"


@pytest.mark.parametrize(
    "agent, recipe, message",
    [
        (None, "impala-cartpole", "leave --recipe out"),
        ("ppo", None, "trains impala, not ppo; leave the agent out"),
    ],
)
def test_a_resumed_run_keeps_its_agent(run_dir, agent, recipe, message):
    with pytest.raises(CallboardError, match=message):
        redefine_experiment(agent, recipe, ["--run-dir", run_dir])
    with pytest.raises(CallboardError, match="--resume needs the run's directory"):
        redefine_experiment(agent, recipe, [])


@pytest.mark.parametrize(
    "options, own",
    [
        (["--ray-cpus.actor", "0.5", "--seed", "1"], ["--ray-cpus.actor", "0.5"]),
        (["--ray_cpus={actor: 1}", "--seed=1"], ["--ray_cpus={actor: 1}"]),
        (["--no-ray-cpus.actor", "--seed", "1"], ["--no-ray-cpus.actor"]),
        (["--ray-wait", "--seed", "1"], ["--ray-wait"]),
        (["--seed", "ray_wait"], []),
    ],
)
def test_options_are_split_with_their_values(options, own):
    found, others = split_options(options, ["ray_cpus", "ray_wait"])
    assert found == own
    assert sorted(found + others) == sorted(options)


def test_an_option_that_resembles_the_command_s_own_is_refused():
    check_option_names(["--max-stps", "--agent.x=1", "stray"], ["--resume"])
    with pytest.raises(CallboardError, match="unknown option '--resum'; did you mean '--resume'?"):
        check_option_names(["--resum"], ["--resume"])


def test_without_an_agent_the_help_says_how_to_see_its_settings():
    parser = experiment_parser("graph", "Shows the graph.")
    without = experiment_help(parser, None)
    assert "All options of the run, and those of an agent: callboard graph ppo --help" in without
    assert "--env: " in without and "--agent." not in without
    assert "--agent.unroll-length" in experiment_help(parser, "impala")


def test_the_help_begins_with_what_most_runs_set(capsys):
    assert main(["train", "sac", "--help"]) == 0
    text = capsys.readouterr().out
    options = re.findall(r"^  (--[\w.-]+|-h, --help)", text, re.MULTILINE)
    assert options[:4] == ["--env", "--max-steps", "--stop-return", "--seed"]
    assert options.index("--agent.replay.size") < options.index("--recipe") < options.index("--env-options")
    assert options.index("--agent.reward-scale") < options.index("--ray-wait")
    assert "docs/" not in text.partition("A title, as in")[0]
