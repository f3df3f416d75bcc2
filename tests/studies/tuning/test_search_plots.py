"""The plot of a search."""

import pytest

from callboard.errors import CallboardError
from callboard.studies.tuning.records import Trial
from callboard.studies.tuning.search_definition import Tuning
from callboard.studies.tuning.search_plots import best_so_far, plot_search

SEARCH = ["agent.rate=loguniform(1e-4,1e-2)", "agent.kind=choice(a,[1,2])", "actors=grid(1,2)", "x=uniform(0,1)"]


def trials():
    made = [Trial(n, {"agent.rate": 10.0**-n, "agent.kind": [1, 2], "actors": 2, "x": 0.1 * n}) for n in (2, 3, 4)]
    for trial, value in zip(made[:2], (5.0, 3.0), strict=True):
        trial.report(100, value, "max")
    made[1].state = "stopped early"
    return made


@pytest.mark.slow("daily")
def test_a_plot_has_a_panel_for_each_setting(tmp_path):
    pytest.importorskip("matplotlib")
    plot_search(Tuning({}, SEARCH), trials(), tmp_path / "search.svg")
    text = (tmp_path / "search.svg").read_text()
    for words in ("rate", "kind", "actors", "trial", "best evaluator/return", "stopped early"):
        assert f"<!-- {words} -->" in text
    # Whole numbers of trials, more than one number on the logarithmic axis, and the line in the legend.
    assert "<!-- best so far -->" in text and "<!-- 2 -->" in text and "<!-- 2.5 -->" not in text
    assert "<!-- 0.005 -->" in text and "<!-- 0.002 -->" in text
    with pytest.raises(CallboardError, match="nothing to plot: no trial has a value of evaluator/return yet"):
        plot_search(Tuning({}, SEARCH), trials()[2:], tmp_path / "none.png")


def test_the_best_value_so_far_is_the_best_of_all_trials_before():
    values = [Trial(number, {}, best=value) for number, value in enumerate((3.0, 1.0, 4.0, 2.0))]
    assert best_so_far(values, "max") == [3.0, 3.0, 4.0, 4.0]
    assert best_so_far(values, "min") == [3.0, 1.0, 1.0, 1.0]
