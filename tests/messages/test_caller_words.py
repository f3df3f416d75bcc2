"""Messages in the words of the caller: options of the command, or arguments in Python."""

import pytest

from callboard.cli.command import main
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.new_or_resumed import find_run_directory
from callboard.launch.launchers.registry import make_launcher
from callboard.messages.caller_words import argument, is_by_command, words_of_command


def test_arguments_are_named_as_the_caller_gives_them():
    assert [argument("resume"), argument("launcher", "threads")] == ["resume=True", 'launcher="threads"']
    with words_of_command():
        assert [argument("resume"), argument("launcher", "threads")] == ["--resume", "--launcher threads"]
        assert argument("evaluator", False) == "--evaluator false"
    assert not is_by_command()


def test_a_message_follows_from_where_the_call_came_from(tmp_path, capsys):
    (tmp_path / "experiment.yaml").write_text("env: CartPole-v1\n")
    (tmp_path / "counters.json").write_text('{"learner_steps": 1}')
    (tmp_path / "checkpoints" / "000000000001").mkdir(parents=True)
    with pytest.raises(CallboardError, match="continue it with resume=True, replace it with overwrite=True"):
        find_run_directory(Experiment("ppo", env="CartPole-v1", run_dir=tmp_path), resume=False)
    assert main(["train", "ppo", "--env", "CartPole-v1", "--run-dir", str(tmp_path)]) == 2
    assert "continue it with --resume, replace it with --overwrite" in capsys.readouterr().err


def test_a_launcher_that_needs_options_is_named_as_the_caller_makes_it(capsys):
    with pytest.raises(CallboardError, match=r"pass HostsLauncher\(cluster=..., host=...\)"):
        make_launcher("hosts")
    assert main(["train", "ppo", "--env", "CartPole-v1", "--launcher", "hosts"]) == 2
    assert "--launcher hosts needs --cluster and --host" in capsys.readouterr().err
