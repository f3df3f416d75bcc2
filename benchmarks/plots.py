"""Plots of results for the documentation."""

import pathlib
from collections.abc import Sequence
from typing import Any

from .results import Result, spread

_RATIOS, _SCALE = "benchmarks.png", "benchmarks-scale.png"


def write_plots(results: Sequence[Result], directory: pathlib.Path) -> list[pathlib.Path]:
    """Write plots of the ratios, and of the scale benchmark if it was measured; return their paths."""
    written = [_write(_plot_ratios, [result for result in results if result.benchmark != "scale"], directory / _RATIOS)]
    scale = [result for result in results if result.benchmark == "scale"]
    if scale:
        written.append(_write(_plot_scale, scale[0], directory / _SCALE))
    return written


def _write(plot: Any, what: Any, path: pathlib.Path) -> pathlib.Path:
    import matplotlib

    matplotlib.use("Agg")
    picture = plot(what)
    picture.savefig(path, dpi=120, bbox_inches="tight")
    return path


def _plot_ratios(results: Sequence[Result]) -> Any:
    """Plot median and quartiles of every ratio, with targets as triangles: `>` where more is better, otherwise `<`."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    cases = [(result.benchmark, case) for result in reversed(results) for case in reversed(result.cases)]
    picture = Figure(figsize=(8, 1 + 0.32 * len(cases)))
    axes = picture.add_subplot()
    for row, (_, case) in enumerate(cases):
        ratio = spread(case.ratios)
        color = {None: "tab:gray", True: "tab:green", False: "tab:red"}[case.reached]
        axes.plot([ratio.lower, ratio.upper], [row, row], color=color, linewidth=5, alpha=0.5)
        axes.plot(ratio.median, row, "o", color=color)
        if case.target is not None:
            axes.plot(case.target, row, ">" if case.higher_is_better else "<", color="black", markersize=5)
    axes.axvline(1.0, color="gray", linewidth=0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.set_yticks(range(len(cases)), [f"{benchmark}: {case.name}" for benchmark, case in cases])
    axes.set_xlabel("ours over the limit: median and quartiles; the triangle is the target")
    return picture


def _plot_scale(result: Result) -> Any:
    """Plot environment steps per second against the number of actors."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(6, 4))
    axes = picture.add_subplot()
    counts = [int(case.name.split()[0]) for case in result.cases]
    ours = [spread(case.ours) for case in result.cases]
    axes.plot(counts, [spread(case.limit).median for case in result.cases], "--", color="gray", label="ideal")
    axes.errorbar(
        counts,
        [one.median for one in ours],
        [[one.median - one.lower for one in ours], [one.upper - one.median for one in ours]],
        marker="o",
        label="ours",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("actors")
    axes.set_ylabel(result.cases[0].unit)
    axes.legend(loc="best")
    return picture
