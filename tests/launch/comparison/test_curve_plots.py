"""Plots of curves and scores, and files that cannot be plots."""

import sys

import pytest
from synthetic_runs import write_run

from callboard.errors import CallboardError
from callboard.launch.comparison.comparison import ComparisonSettings, compare, group_runs
from callboard.launch.comparison.curve_plots import check_plot, plot_curves, plot_scores
from callboard.launch.comparison.run_results import read_results


def test_plots_of_several_groups_and_environments_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    for seed in (1, 2):
        write_run(tmp_path / f"a{seed}", [(1000, 100.0 * seed), (2000, 480.0)], seed=seed)
    write_run(tmp_path / "b", [(1000, 200.0)], agent="ppo")
    write_run(tmp_path / "c", [(1000, -200.0)], env="Acrobot-v1")
    comparison = compare(group_runs(read_results([str(tmp_path)]).runs), ComparisonSettings(goal=475, resamples=10))
    for name, plot in (("curves.png", plot_curves), ("scores.svg", plot_scores)):
        check_plot(tmp_path / name)
        plot(comparison, tmp_path / name)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "scores.svg").read_text()


@pytest.mark.parametrize(
    "name, message",
    [
        ("curves", "must end in .png, .svg, .pdf, not 'curves'"),
        ("curves.jpg", "must end in .png, .svg, .pdf"),
        ("nowhere/curves.png", "there is no directory .*; make it first"),
        ("folder.png", "is a directory; name a file"),
    ],
)
def test_a_file_that_cannot_be_a_plot_is_refused(name, message, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(CallboardError, match=message):
        check_plot(tmp_path / name)


def test_without_matplotlib_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CallboardError, match=r"plots need Matplotlib; install callboard\[plot\]"):
        check_plot(None)
