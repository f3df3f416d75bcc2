"""Arguments that name a run and its weights."""

import pytest

from callboard.cli.command_parser import CommandParser
from callboard.cli.run_arguments import add_run_arguments, named_reference, read_run
from callboard.errors import CallboardError
from callboard.launch.experiments.settings import parse_experiment, write_experiment


@pytest.fixture
def run_dir(tmp_path):
    write_experiment(parse_experiment("impala", {}, ["--env", "CartPole-v1"]), tmp_path / "experiment.yaml")
    return str(tmp_path)


@pytest.mark.parametrize(
    "words, expected",
    [
        (["runs/x"], ("runs/x", "")),
        (["runs/x", "--checkpoint", "latest"], ("runs/x", "latest")),
        (["runs/x", "--checkpoint", "1200"], ("runs/x", "1200")),
        (["runs/x@latest"], ("runs/x", "latest")),
        (["runs/x@1200"], ("runs/x", "1200")),
    ],
)
def test_weights_are_named_with_the_run_or_by_an_option(words, expected):
    parser = CommandParser("callboard play")
    add_run_arguments(parser)
    assert named_reference(parser.parse_args(words)) == expected


def test_weights_are_not_named_twice():
    parser = CommandParser("callboard play")
    add_run_arguments(parser)
    with pytest.raises(CallboardError, match="runs/x@5 and --checkpoint latest both name weights; leave one out"):
        named_reference(parser.parse_args(["runs/x@5", "--checkpoint", "latest"]))


@pytest.mark.parametrize("text", ["-1", "1.5", "newest", "٣", ""])
def test_a_checkpoint_is_a_name_or_a_learner_step(text):
    parser = CommandParser("callboard play")
    add_run_arguments(parser)
    with pytest.raises(CallboardError, match="--checkpoint must be best, latest or a learner step, not"):
        parser.parse_args(["runs/x", f"--checkpoint={text}"])


def test_options_change_the_settings_of_the_run(run_dir):
    assert read_run(run_dir).experiment().env_options == {}
    assert read_run(run_dir, ["--env-options.max_episode_steps", "5"]).experiment().env_options == {
        "max_episode_steps": 5
    }


@pytest.mark.parametrize(
    "options, message",
    [
        (["--env", "CartPol-v1"], "did you mean 'CartPole-v1'?"),
        (["--actors", "-1"], "actors must be a whole number from 0"),
        (["--env-options.gravity", "3"], "gravity"),
    ],
)
def test_settings_that_cannot_work_are_refused(run_dir, options, message):
    with pytest.raises(CallboardError, match=message.replace("?", r"\?")):
        read_run(run_dir, options)


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(CallboardError, match="there is no run in .*: it has no experiment.yaml"):
        read_run(str(tmp_path))
