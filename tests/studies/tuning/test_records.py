"""Records of the trials of a search, and the directory that they are in."""

import json
import os

import pytest
from rich.console import Console

from callboard.cli.command import main
from callboard.errors import CallboardError
from callboard.studies.tuning.records import Trial, TuneDirectory, best_trial, trials_table
from callboard.studies.tuning.search_space import parse_search


def trial(number, reports, mode="max", **fields):
    result = Trial(number, {"agent.optimizer.learning_rate": 10.0**-number}, **fields)
    for steps, value in reports:
        result.report(steps, value, mode)
    return result


def test_the_best_trial_is_the_first_to_reach_the_best_value():
    trials = [
        trial(0, [(1000, 400.0), (2000, 500.0), (3000, 90.0)]),
        trial(1, [(1000, 500.0), (2000, 500.0)]),
        trial(2, [(1000, float("nan"))]),
        trial(3, []),
    ]
    assert [(t.best, t.best_steps) for t in trials] == [(500.0, 2000), (500.0, 1000), (None, 0), (None, 0)]
    assert best_trial(trials, "max").number == 1
    assert best_trial(trials[2:], "max") is None
    losses = [trial(0, [(1000, 0.3), (2000, -0.1)], "min"), trial(1, [(1000, 0.2)], "min")]
    assert best_trial(losses, "min").number == 0


def test_the_best_values_are_those_of_their_time():
    taken_over = trial(1, [(1000, 9.0), (2000, 50.0)])
    taken_over.values = {"agent.optimizer.learning_rate": 0.5}
    taken_over.report(3000, 40.0, "max")
    assert taken_over.best_values == {"agent.optimizer.learning_rate": 0.1}
    taken_over.report(4000, 60.0, "max")
    assert taken_over.best_values == {"agent.optimizer.learning_rate": 0.5}


def test_trials_are_read_as_they_were_written(tmp_path):
    directory = TuneDirectory(tmp_path)
    assert directory.read_trials() == {}
    trials = [trial(0, [(1000, 400.0)], state="done"), trial(7, [], takeovers=[(0, 1000)], error="it broke")]
    directory.write_trials(trials)
    assert directory.read_trials() == {0: trials[0], 7: trials[1]}
    assert [path.name for path in tmp_path.iterdir()] == ["trials.json"]


def test_reports_that_are_no_numbers_are_kept_as_json(tmp_path):
    written = trial(0, [(1000, float("nan")), (2000, float("inf")), (3000, 5.0)])
    directory = TuneDirectory(tmp_path)
    directory.write_trials([written])
    assert "NaN" not in directory.trials.read_text() and "Infinity" not in directory.trials.read_text()
    read = directory.read_trials()[0]
    assert (read.best, [steps for steps, _ in read.reports]) == (5.0, [1000, 2000, 3000])


def test_the_table_begins_with_the_best(capsys):
    trials = [
        trial(0, [(5000, 21.5)], state="stopped early"),
        trial(1, [(5000, 100.0), (60_000, 499.5)], state="done"),
        trial(2, [], state="failed"),
    ]
    Console(width=100).print(trials_table(trials, "evaluator/return", "max"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["evaluator/return", "(max)"]
    assert lines[2] == ["01", "0.1", "499.5", "60,000", "60,000", "done"]
    assert lines[3] == ["00", "1", "21.5", "5,000", "5,000", "stopped", "early"]
    assert lines[4] == ["02", "0.01", "-", "-", "0", "failed"]


@pytest.fixture
def directory(tmp_path):
    directory = TuneDirectory(tmp_path / "search")
    directory.create({"settings": {}, "search": []})
    (directory.ray / "state").mkdir(parents=True, mode=0o755)
    (directory.ray / "state" / "tuner.pkl").touch(mode=0o644)
    return directory


def test_a_search_of_ones_own_is_trusted(directory):
    directory.check_owner()


@pytest.mark.parametrize("name", [".", "tune.yaml", "ray/state", "ray/state/tuner.pkl"])
def test_a_search_that_others_can_write_is_neither_resumed_nor_plotted(directory, name, capsys):
    (directory.path / name).chmod(0o777)
    if name != ".":
        directory.check_owner()  # No other user enters its directory.
        directory.path.chmod(0o755)
    for option in ("--resume", "--plot"):
        assert main(["tune", option, "--run-dir", str(directory.path)]) == 2
        assert "can be written by others" in capsys.readouterr().err


def test_a_search_of_another_user_is_not_resumed(directory, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CallboardError, match="belongs to another user, .* --trust"):
        directory.check_owner()


@pytest.mark.parametrize(
    "content", ["", "{", "{}", "null", "3", "[1]", '[{"number": 1}]', '[{"number": 1, "reports": [], "odd": 2}]']
)
def test_damaged_records_are_refused_in_one_line(directory, content):
    directory.trials.write_text(content)
    with pytest.raises(CallboardError, match="trials.json is damaged; replace it by a copy, or begin the search anew"):
        directory.read_trials()


@pytest.mark.parametrize(
    "field, value",
    [
        ("number", "a"),
        ("number", -1),
        ("number", None),
        ("values", []),
        ("values", {"agent.discount": "x"}),
        ("values", {}),
        ("state", "zzz"),
        ("environment_steps", "x"),
        ("reports", "abc"),
        ("reports", [["a", 1.0]]),
        ("reports", [[1000, [3.0]]]),
        ("best", "x"),
        ("best_steps", "x"),
        ("best_values", [1]),
        ("best_values", {}),
        ("best_values", {"env": "Acrobot-v1"}),
        ("best_values", {"agent.discount": 0.9, "env": "Acrobot-v1"}),
        ("best_values", {"agent.discount": "os:system"}),
        ("best_values", {"agent.discount": {"x": 0.9}}),
        ("best_values", {"agent.discount": 0.1}),
        ("takeovers", [[0]]),
        ("takeovers", [["a", 1]]),
        ("ended", None),
        ("error", 3),
    ],
)
def test_a_wrong_value_in_the_records_is_damage(directory, field, value):
    values, space = {"agent.discount": 0.9}, parse_search(["agent.discount=uniform(0.8,0.99)"], {})
    trial = Trial(0, values, "done", 5000, [(1000, 3.0)], 3.0, 1000, values)
    directory.write_trials([trial])
    assert directory.read_trials(space) == {0: trial}
    directory.trials.write_text(json.dumps([{**json.loads(directory.trials.read_text())[0], field: value}]))
    with pytest.raises(CallboardError, match="trials.json is damaged, or tune.yaml was changed; replace it by a copy"):
        directory.read_trials(space)


def test_every_trial_has_a_run_directory_of_its_own(directory):
    assert directory.run(3).path == directory.path / "trials" / "03"
    assert directory.run(103).path.name == "103"


def test_a_report_that_arrives_twice_is_recorded_once():
    again = trial(0, [(1000, 4.0), (1000, 4.0), (2000, 4.0)])
    assert again.reports == [(1000, 4.0), (2000, 4.0)]
    assert (again.best_steps, again.environment_steps) == (1000, 2000)
