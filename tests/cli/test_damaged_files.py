"""Commands that only look at a run directory end with one line, whatever lies in it."""

import json
import os

import pytest

from callboard.cli.command import main

EXPERIMENT = "agent: {name: impala}\nenv: CartPole-v1\nseed: 1\n"
ROW = {"environment_steps": 100, "elapsed_seconds": 1.0, "actor/episode_return": 20.0}
ADDRESS = {"host": "somewhere", "ip": "127.0.0.1", "process": 1, "port": 34567}


def pipe(path):
    os.mkfifo(path)


def link(path):
    path.symlink_to("/etc/passwd")


def device(path):
    path.symlink_to("/dev/zero")


def nested(path):
    path.write_text("[" * 200_000 + "\n")


def folder(path):
    path.mkdir()


def text(content):
    def write(path):
        path.write_text(content + "\n")

    return write


def row(**values):
    return text(json.dumps({**ROW, **values}))


def address(**values):
    return text(json.dumps({**ADDRESS, **values}))


NOT_REGULAR = [pipe, link, device, folder]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run"
    path.mkdir()
    (path / "experiment.yaml").write_text(EXPERIMENT)
    row()(path / "metrics.jsonl")
    return path


def one_line(capsys, arguments):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.startswith("callboard: "), error
    return error


@pytest.mark.parametrize(
    "damage",
    [
        *NOT_REGULAR,
        nested,
        row(environment_steps=float("nan")),
        row(**{"actor/episode_return": float("inf")}),
        text('{"environment_steps": 1e999, "elapsed_seconds": 1}'),
        row(environment_steps="5"),
        row(elapsed_seconds="5"),
        row(environment_steps=10**400),
        row(environment_steps=True),
        text("[]"),
    ],
)
def test_compare_names_a_run_whose_metrics_cannot_be_used(damage, run, capsys):
    (run / "metrics.jsonl").unlink()
    damage(run / "metrics.jsonl")
    assert "metrics.jsonl" in one_line(capsys, ["compare", "run", "--metric", "actor/episode_return"])


@pytest.mark.parametrize("damage", NOT_REGULAR)
@pytest.mark.parametrize("command", [["compare", "run"], ["evaluate", "run"], ["export", "run", "policy"]])
def test_settings_are_read_from_a_regular_file_only(damage, command, run, capsys):
    (run / "experiment.yaml").unlink()
    damage(run / "experiment.yaml")
    one_line(capsys, command)


@pytest.mark.parametrize(
    "damage",
    [
        *NOT_REGULAR,
        nested,
        address(process=1e400),
        text('{"host": "x", "ip": "127.0.0.1", "process": 1e400, "port": 1}'),
        address(port=float("nan")),
        address(host=["x"]),
        address(host="a\n\x1b[2J"),
        address(ip="$(reboot)"),
        text("null"),
    ],
)
def test_top_connects_to_nothing_that_a_damaged_file_names(damage, run, capsys):
    damage(run / "coordinator.json")
    assert "the run in run is not running" in one_line(capsys, ["top", "run", "--once"])


def test_top_refuses_an_address_that_cannot_be_one(capsys):
    assert "there is no run in" in one_line(capsys, ["top", "a\udcff:5", "--once"])


@pytest.mark.parametrize("damage", [pipe, link, device])
def test_a_lock_of_another_kind_is_not_waited_for(damage, run, capsys):
    damage(run / "lock")
    main(["compare", "run", "--metric", "actor/episode_return"])
    one_line(capsys, ["train", "--resume", "--run-dir", "run", "--launcher", "inline"])
    assert os.path.lexists(run / "lock")


@pytest.mark.parametrize("content", ['{"ppo": [0, NaN]}', '{"ppo": [1e999, 1]}', "[" * 100_000])
def test_the_progress_of_a_study_is_json(content, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "progress.json").write_text(content)
    assert "progress.json is damaged" in one_line(capsys, ["study", "ppo", "--run-dir", "study"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["study", "ppo"],
        ["train", "impala", "--env", "CartPole-v1", "--max-steps", "10", "--launcher", "inline"],
        ["tune", "impala", "--env", "CartPole-v1"],
    ],
)
def test_an_empty_run_directory_is_refused(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "is empty: name a directory, or leave it out" in one_line(capsys, [*arguments, "--run-dir", ""])
    assert not os.listdir(tmp_path)


HOSTILE = "Cart\n\x1b[31mforged   row\x1b]0;title\x07\x9b2J"


@pytest.mark.parametrize("arguments", [["ls", "."], ["compare", "run", "--metric", "actor/episode_return"]])
def test_control_codes_of_a_file_do_not_reach_the_terminal(run, arguments, capsys):
    (run / "experiment.yaml").write_text(EXPERIMENT.replace("CartPole-v1", json.dumps(HOSTILE)))
    main(arguments)
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert "forged   row" in text
    assert all(letter.isprintable() or letter == "\n" for letter in text), text
    assert not any(line.lstrip().startswith(("forged", "\\x1b")) for line in text.splitlines())


def test_a_list_of_runs_does_not_read_an_endless_line(run, capsys):
    os.truncate(run / "metrics.jsonl", 2**34)
    assert main(["ls", "."]) == 0
    assert "damaged" in capsys.readouterr().out
