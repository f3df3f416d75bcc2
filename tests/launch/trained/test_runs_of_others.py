"""Runs that belong to another user are evaluated, exported, loaded and resumed only if they are trusted."""

import os
import re

import pytest
from untrained_runs import write_run

import callboard
from callboard.cli.command import main
from callboard.errors import CallboardError
from callboard.launch.experiments.policy_settings import TrainedPolicy
from callboard.launch.saved.saved_policies import trained_agent

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
OTHER = 65534


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("others") / "run"
    write_run(path, "ppo", steps=(5,))
    return path


@pytest.fixture(params=["directory", "settings"])
def of_another(request, run):
    path = run if request.param == "directory" else run / "experiment.yaml"
    os.chown(path, OTHER, OTHER)
    yield run
    os.chown(path, 0, 0)


def test_commands_refuse_it_in_one_line(of_another, tmp_path, capsys):
    for arguments in (
        ["evaluate", str(of_another)],
        ["export", str(of_another), str(tmp_path / "policy")],
        ["train", "--resume", "--run-dir", str(of_another), "--launcher", "inline"],
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert re.fullmatch(r"callboard: .* belongs to another user, .*, give --trust\n", error)
    assert not (tmp_path / "policy").exists()


def test_python_refuses_it_too(of_another, tmp_path):
    for call in (
        lambda: callboard.evaluate(of_another, 1),
        lambda: callboard.export(of_another, tmp_path / "policy"),
        lambda: callboard.load_policy(of_another),
    ):
        with pytest.raises(CallboardError, match="belongs to another user, .*, give trust=True$"):
            call()
    with pytest.raises(CallboardError, match="belongs to another user, .*, copy the run"):
        trained_agent(TrainedPolicy(str(of_another)))


def test_it_is_used_if_it_is_trusted(of_another, tmp_path, capsys):
    assert main(["evaluate", str(of_another), "--trust", "--episodes", "1"]) == 0
    assert main(["export", str(of_another), str(tmp_path / "exported"), "--trust"]) == 0
    assert callboard.evaluate(of_another, 1, trust=True).returns
    assert callboard.load_policy(of_another, trust=True) is not None
    assert main(["train", "--resume", "--run-dir", str(of_another), "--trust", "--max-steps", "0"]) == 2
    assert "max_steps" in capsys.readouterr().err


def test_looking_at_it_needs_no_trust(of_another, capsys):
    assert main(["top", str(of_another), "--once"]) == 2
    assert "is not running" in capsys.readouterr().err


def test_the_seeds_of_another_are_not_continued(tmp_path, capsys):
    (tmp_path / "progress.json").write_text('{"seed-1": null}')
    (tmp_path / "settings.yaml").write_text("agent: impala\nenv: CartPole-v1\n")
    os.chown(tmp_path, OTHER, OTHER)
    try:
        assert main(["train", "--resume", "--run-dir", str(tmp_path)]) == 2
    finally:
        os.chown(tmp_path, 0, 0)
    assert re.fullmatch(r"callboard: the runs in .* belong to another user, .* --trust\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    "directory_mode, settings_mode, refused",
    [
        (0o777, 0o600, True),
        (0o770, 0o600, True),
        (0o755, 0o666, True),
        (0o755, 0o664, True),
        (0o755, 0o644, False),
        (0o700, 0o666, False),
    ],
)
def test_a_run_that_others_can_write_is_refused(directory_mode, settings_mode, refused, run, tmp_path, capsys):
    settings = run / "experiment.yaml"
    before = run.stat().st_mode, settings.stat().st_mode
    try:
        run.chmod(directory_mode)
        settings.chmod(settings_mode)
        code = main(["export", str(run), str(tmp_path / "policy")])
        error = capsys.readouterr().err
        assert code == (2 if refused else 0)
        message = r"callboard: .* can be written by others, .*, and if you trust it, give --trust, or chmod go-w\n"
        assert not refused or re.fullmatch(message, error)
    finally:
        run.chmod(before[0])
        settings.chmod(before[1])
