"""The tables of a comparison."""

import json

import pytest
from rich.console import Console
from synthetic_runs import write_run

from callboard.studies.comparison.comparison import ComparisonSettings, compare, group_runs
from callboard.studies.comparison.comparison_tables import plain_values, tables
from callboard.studies.comparison.run_results import read_results


@pytest.fixture
def comparison(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "seed-1", [(1000, 100.0), (2000, 480.0)], seed=1)
    write_run(tmp_path / "runs" / "seed-2", [(1000, 20.0), (2000, 0.25)], seed=2, total=2600)
    runs = read_results(["runs"]).runs
    settings = ComparisonSettings(goal=475, score_ranges={"CartPole-v1": [20, 500]}, resamples=100)
    return compare(group_runs(runs), settings)


def test_the_tables_show_scores_goals_and_runs(comparison, capsys):
    groups, runs, variants = tables(comparison)
    assert groups.columns[5] == "95% interval" and groups.columns[-2:] == ["median steps", "median seconds"]
    assert groups.rows == [
        ["impala on CartPole-v1", "2", "240.1 ± 239.9", "150.1", "240.1", "0.25 to 480.0", "1 of 2", "-", "-"]
    ]
    assert runs.rows == [
        ["impala on CartPole-v1", "1", "2,000", "2", "480.0 ± 48.0", "2,000", "2", "runs/seed-1"],
        ["impala on CartPole-v1", "2", "-", "-", "0.25 ± 0.025", "2,600", "3", "runs/seed-2"],
    ]
    assert variants.rows[0][:4] == ["impala", "CartPole-v1", "2", "0.459"]
    Console(width=200).print(runs.rich())
    assert "480.0 ± 48.0" in capsys.readouterr().out


def test_markdown_has_a_line_for_each_row(comparison):
    lines = tables(comparison)[1].markdown().splitlines()
    assert lines[0].startswith("| group | seed | steps to goal | seconds to goal | score |")
    assert lines[1].startswith("| --- | --: | --: | --: | --: |")
    assert lines[2] == "| impala on CartPole-v1 | 1 | 2,000 | 2 | 480.0 ± 48.0 | 2,000 | 2 | runs/seed-1 |"
    assert len(lines) == 4


def test_values_for_json_are_exact(comparison):
    values = json.loads(json.dumps(plain_values(comparison)))
    assert values["groups"][0]["mean"] == 240.125 and values["groups"][0]["reached"] == 1
    assert [run["steps_to_goal"] for run in values["runs"]] == [2000, None]
    assert values["runs"][0]["seed"] == 1 and values["normalized"][0]["variant"] == "impala"
    assert values["settings"]["goal"] == 475
