"""Plots of curves and scores, and files that cannot be plots."""

import errno
import itertools
import pathlib
import sys

import pytest
from slow_cases import slow_but
from synthetic_runs import write_run

from callboard.errors import CallboardError
from callboard.studies.comparison import curve_plots
from callboard.studies.comparison.comparison import ComparisonSettings, Group, compare, group_runs
from callboard.studies.comparison.curve_plots import check_plot, plot_curves, plot_scores, plot_summary
from callboard.studies.comparison.run_results import read_results


@pytest.mark.slow("daily")
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


def shortened(name, times):
    return f"impala, number {name}{', another_setting_of_it 0.123' * times}"


@pytest.mark.slow("daily")
@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("count", slow_but([1, 3, 12], 12))
def test_long_names_of_many_groups_neither_cover_the_curves_nor_leave_the_picture(count, tmp_path, monkeypatch):
    FigureCanvasAgg = pytest.importorskip("matplotlib.backends.backend_agg").FigureCanvasAgg
    write_run(tmp_path / "a", [(1000, 100.0), (2000, 480.0)])
    (run,) = read_results([str(tmp_path)]).runs
    groups = [Group(shortened(number, number % 6), "CartPole-v1", [run]) for number in range(count)]
    written = []
    monkeypatch.setattr(curve_plots, "write_plot", lambda picture, path: written.append(picture))
    comparison = compare(groups, ComparisonSettings(resamples=10))
    for plot in (plot_curves, plot_scores):
        plot(comparison, tmp_path / "x.png")
        picture = written.pop()
        FigureCanvasAgg(picture).draw()
        (axes,) = picture.axes
        texts = [*axes.get_yticklabels(), *(axes.get_legend().get_texts() if axes.get_legend() else [])]
        whole, inside = picture.bbox, axes.get_window_extent()
        assert inside.width > whole.width / 3 and inside.height > whole.height / 4
        for box in (text.get_window_extent() for text in texts):
            assert box.x0 >= whole.x0 and box.x1 <= whole.x1 and box.y0 >= whole.y0 and not inside.overlaps(box)
        boxes = [text.get_window_extent() for text in axes.get_yticklabels()]
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


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
    with pytest.raises(CallboardError, match=r"plots need Matplotlib \(.*\): .*pip install 'callboard\[plot\]'"):
        check_plot(None)


@pytest.mark.slow("daily")
def test_a_summary_shows_all_environments_in_one_picture(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    for seed in (1, 2, 3):
        for agent in ("ppo", "impala"):
            write_run(tmp_path / f"{agent}{seed}", [(0, 20.0), (1000, 100.0 * seed)], seed=seed, agent=agent)
            path = tmp_path / f"{agent}-acrobot{seed}"
            write_run(path, [(0, -500.0), (2000, -100.0)], seed=seed, agent=agent, env="Acrobot-v1")
    ranges = {"CartPole-v1": [20, 500], "Acrobot-v1": [-500, -80]}
    settings = ComparisonSettings(score_ranges=ranges, resamples=50)
    comparison = compare(group_runs(read_results([str(tmp_path)]).runs), settings)
    written = []
    monkeypatch.setattr(curve_plots, "write_plot", lambda picture, path: written.append(picture))
    plot_summary(comparison, tmp_path / "summary.png")
    means, curves, profiles = written[0].axes[:3]
    assert sorted(label.get_text() for label in means.get_yticklabels()) == ["impala", "ppo"]
    line = curves.get_lines()[0]
    assert (line.get_xdata()[[0, -1]] == (0, 1)).all() and line.get_ydata()[0] == 0.0
    expected = [score.iqm for score in comparison.variants]
    assert [line.get_ydata()[-1] for line in curves.get_lines()] == pytest.approx(expected)
    assert profiles.get_lines()[0].get_ydata()[-1] == 0.0


def test_a_summary_needs_scores_that_count_as_0_and_1(tmp_path):
    write_run(tmp_path / "a", [(1000, 100.0), (2000, 480.0)])
    comparison = compare(group_runs(read_results([str(tmp_path)]).runs), ComparisonSettings(resamples=10))
    with pytest.raises(CallboardError, match="needs score_ranges"):
        plot_summary(comparison, tmp_path / "x.png")


class FullDisk:
    """A picture that is cut off where it writes to a file itself."""

    def savefig(self, target, **options):
        if isinstance(target, pathlib.Path):
            target.write_bytes(b"cut")
            raise OSError(errno.ENOSPC, "No space left on device")
        target.write(b"a whole picture")


def test_a_plot_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "p.png"
    path.write_bytes(b"before")

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("os.fsync", fail)
        for plot in (path, tmp_path / "new.png"):
            with pytest.raises(CallboardError, match="the plot .*png cannot be written: No space left on device"):
                curve_plots.write_plot(FullDisk(), plot)
    assert [file.name for file in tmp_path.iterdir()] == ["p.png"] and path.read_bytes() == b"before"
    curve_plots.write_plot(FullDisk(), path)
    assert path.read_bytes() == b"a whole picture"
