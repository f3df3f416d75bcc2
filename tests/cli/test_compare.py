"""`callboard compare`: tables, plots, JSON, and mistakes in one line."""

import json

import pytest
from synthetic_runs import write_run

from callboard.cli.command import main


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        write_run(tmp_path / "runs" / f"seed-{seed}", [(1000, 100.0), (2000, 480.0 + seed)], seed=seed)
    (tmp_path / "runs" / "seed-3").mkdir()
    (tmp_path / "runs" / "seed-3" / "experiment.yaml").write_text("a")
    return tmp_path


def test_tables_are_printed_with_a_line_about_every_run_that_is_left_out(runs, capsys):
    assert main(["compare", "runs", "--goal", "475"]) == 0
    text = capsys.readouterr().out
    assert "impala on CartPole-v1     2  481.5 ± 0.5" in text and "2 of 2" in text
    assert "runs/seed-3 is left out: its experiment.yaml is damaged" in text.splitlines()


def test_ranges_of_environments_without_runs_are_named(runs, capsys):
    assert main(["compare", "runs", "--score-ranges", "{CartPole-v1: [20, 500], Cartpole-v1: [20, 500]}"]) == 0
    assert "score_ranges names Cartpole-v1, in which no run is compared" in capsys.readouterr().out.splitlines()


def test_numbers_are_whole_where_there_is_no_terminal(runs, capsys):
    label = "a name of a group that is as long as the settings of a run can be, " * 4
    assert main(["compare", "runs", "--labels", f"{{runs: '{label}'}}"]) == 0
    text = capsys.readouterr().out
    assert label in text and "481.5 ± 0.5" in text and "…" not in text
    assert main(["compare", "runs", "--group-by", "actors"]) == 0
    assert "impala, actors 2 on CartPole-v1     2  481.5 ± 0.5" in capsys.readouterr().out


@pytest.mark.slow("daily")
def test_json_and_plots(runs, capsys):
    pytest.importorskip("matplotlib")
    plots = ["--plot", "curves.png", "--plot-scores=scores.png"]
    assert main(["compare", "--json", "runs/seed-1", "runs/seed-2", *plots, "--goal=-85"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [run["steps_to_goal"] for run in values["runs"]] == [1000, 1000]
    assert (runs / "curves.png").exists() and (runs / "scores.png").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "callboard compare needs a run directory, or a folder of runs"),
        (["nowhere"], "there is no run in nowhere: no experiment.yaml is there or below it"),
        (["runs/seed-3"], "no run can be compared: runs/seed-3 is left out: its experiment.yaml is damaged"),
        (["runs", "--metric", "evaluator/retrun"], "is left out: it has no evaluator/retrun, and 2 more"),
        (["runs", "--goal", "much"], "--goal must be a number that is finite or null, not 'much'"),
        (["runs", "--gaol", "3"], "callboard compare has no option '--gaol'; did you mean '--goal'?"),
        (["runs", "--mode", "most"], "--mode must be max or min, not 'most'"),
        (["runs", "--confidence", "1"], "--confidence must be a number"),
        (["runs", "--resamples", "0"], "--resamples must be a whole number from 1 to 1,000,000, not 0"),
        (["runs", "--score-ranges", "{CartPole-v1: 3}"], "score_ranges.CartPole-v1 must be the scores that count"),
        (["runs", "--plot", "curves.txt"], "a plot must end in .png, .svg, .pdf"),
    ],
)
def test_a_mistake_is_one_line(runs, arguments, message, capsys):
    assert main(["compare", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("callboard: ") and error.count("\n") == 1
