"""Plots of comparisons, with Matplotlib: learning curves and final scores."""

import io
import math
import pathlib
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import CallboardError, writing
from ...files.atomic_files import check_writable, write_file
from ...launch.plain_names import in_plot
from ...messages.install_commands import install_command
from .comparison import Comparison, GroupScore
from .score_statistics import curve_spread, interquartile_mean, performance_profile

_FORMATS = (".png", ".svg", ".pdf")
_COLUMNS = 2
_SIZE = (6.4, 4.0)
"""Size of one panel in inches, without its legend."""
_LEGEND, _NAMES = 80, 32
"""Characters of a line in the legend, and beside the axis of scores."""
_LINE, _GAP = 0.16, 0.14
"""Height of a line of these names, and between two of them, in inches."""


def check_plot(path: pathlib.Path | None) -> None:
    """Refuses a plot that cannot be written, before anything is computed.

    Raises:
      CallboardError: Matplotlib is missing, or the path is not that of a file that can be written.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise CallboardError(f"plots need Matplotlib ({error}): {install_command('callboard[plot]')}") from error
    if path is None:
        return
    if path.suffix not in _FORMATS:
        raise CallboardError(f"a plot must end in {', '.join(_FORMATS)}, not {path.name!r}")
    if path.is_dir():
        raise CallboardError(f"the plot {path} is a directory; name a file")
    if not path.absolute().parent.is_dir():
        raise CallboardError(f"the plot {path} cannot be written: there is no directory {path.parent}; make it first")
    with writing(f"the plot {path}"):
        check_writable(path)


def plot_curves(comparison: Comparison, path: pathlib.Path) -> None:
    """Writes the curves of all groups, one panel for each environment: mean, spread, and single runs as thin lines."""
    settings = comparison.settings
    envs = list(dict.fromkeys(score.group.env for score in comparison.groups))
    variants = list(dict.fromkeys(score.group.variant for score in comparison.groups))
    labels = {id(score): _legend_label(score) for score in comparison.groups}
    most = max(_height(labels[id(score)] for score in comparison.groups if score.group.env == env) for env in envs)
    picture, panels = make_panels(len(envs), _SIZE[1] + 0.8 * most)
    for env, axes in zip(envs, panels, strict=True):
        goals = {score.goal for score in comparison.runs if score.group.env == env and score.goal is not None}
        for score in comparison.groups:
            if score.group.env != env:
                continue
            color, runs = _color(variants.index(score.group.variant)), score.group.runs
            curve = curve_spread(runs, settings.over, settings.spread)
            axes.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.2, linewidth=0)
            for run in runs:
                axes.plot(
                    run.steps if settings.over == "steps" else run.seconds,
                    run.values,
                    color=color,
                    alpha=0.4,
                    linewidth=0.7,
                    marker="o",
                    markersize=3,
                    markevery=[-1],
                )
            axes.plot(
                curve.x, curve.center, color=color, label=labels[id(score)], marker="o" if len(curve.x) == 1 else ""
            )
        for goal in goals:
            axes.axhline(goal, color="gray", linestyle=":", linewidth=1)
        axes.set_title(in_plot(env))
        counted = dict.fromkeys(
            run.counted for score in comparison.groups if score.group.env == env for run in score.group.runs
        )
        axes.set_xlabel(" or ".join(counted) if settings.over == "steps" else "seconds")
        axes.set_ylabel(in_plot(settings.metric))
        # Below the axes, with one group a line: names may be long.
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.16), frameon=False, borderaxespad=0)
    write_plot(picture, path)


def plot_scores(comparison: Comparison, path: pathlib.Path) -> None:
    """Writes the final scores of all groups: interquartile mean with its interval, and single runs as points."""
    envs = list(dict.fromkeys(score.group.env for score in comparison.groups))
    of_env = {env: [score for score in comparison.groups if score.group.env == env] for env in envs}
    names = {env: [_wrapped(score.group.variant, _NAMES) for score in groups] for env, groups in of_env.items()}
    picture, panels = make_panels(len(envs), max(_SIZE[1], 1 + max(map(_height, names.values()))))
    for env, axes in zip(envs, panels, strict=True):
        groups, places = of_env[env], _places(names[env])
        for row, score in zip(places, groups, strict=True):
            if score.interval is not None:
                axes.plot(score.interval, [row, row], color="C0", linewidth=6, alpha=0.3, solid_capstyle="butt")
            axes.plot(score.group.scores, [row] * len(score.group.runs), "|", color="black", markersize=9)
            axes.plot(score.iqm, row, "o", color="C0")
        axes.set_yticks(places, names[env], fontsize="small")
        axes.set_ylim(-_height(names[env]), 0)
        axes.set_title(in_plot(env))
        percent = f"{100 * comparison.settings.confidence:g}%"
        axes.set_xlabel(f"{in_plot(comparison.settings.metric)}: interquartile mean, {percent} interval, runs")
    write_plot(picture, path)


def plot_summary(comparison: Comparison, path: pathlib.Path) -> None:
    """Writes one picture of normalized scores in all environments, as rliable does.

    Its panels: the interquartile mean with its interval, the interquartile mean over the share of the steps, and the
    performance profile with its band.

    Raises:
      CallboardError: no score is normalized, or the file cannot be written.
    """
    settings = comparison.settings
    if not comparison.variants:
        raise CallboardError(
            "the summary needs score_ranges, the scores that count as 0 and 1, of environments that are compared, such "
            "as {CartPole-v1: [20, 500]}"
        )
    names = [_wrapped(score.variant, _NAMES) for score in comparison.variants]
    picture, (means, curves, profiles) = make_panels(3, max(_SIZE[1], 1 + _height(names)), columns=3)
    lowest = min(0.0, *(min(map(min, score.scores)) for score in comparison.variants))
    highest = max(1.0, *(max(map(max, score.scores)) for score in comparison.variants))
    for number, (score, place) in enumerate(zip(comparison.variants, _places(names), strict=True)):
        color = _color(number)
        if score.interval is not None:
            means.plot(score.interval, [place, place], color=color, linewidth=6, alpha=0.3, solid_capstyle="butt")
        means.plot(score.iqm, place, "o", color=color)
        shares, center = _normalized_curve(comparison, score.variant)
        curves.plot(shares, center, color=color, label=names[number])
        profile = performance_profile(score.scores, np.linspace(lowest, highest, 101), settings.confidence)
        profiles.fill_between(profile.thresholds, profile.low, profile.high, color=color, alpha=0.2, linewidth=0)
        profiles.plot(profile.thresholds, profile.share, color=color, label=names[number])
    means.set_yticks(_places(names), names, fontsize="small")
    means.set_ylim(-_height(names), 0)
    means.set_xlabel(f"interquartile mean, {100 * settings.confidence:g}% interval")
    curves.set_xlabel("share of the steps")
    curves.set_ylabel("interquartile mean")
    profiles.set_xlabel("normalized score above which runs end")
    profiles.set_ylabel("share of runs")
    for axes in (curves, profiles):
        axes.legend(fontsize="small", frameon=False)
    write_plot(picture, path)


def _normalized_curve(comparison: Comparison, variant: str) -> tuple[Any, Any]:
    """Returns shares of the steps, and the interquartile mean of the normalized values of all runs there."""
    shares, values = np.linspace(0, 1, 101), []
    for score in comparison.groups:
        bounds = comparison.settings.score_ranges.get(score.group.env)
        if score.group.variant == variant and bounds is not None:
            for run in score.group.runs:
                curve = np.interp(shares * run.total_steps, run.steps, run.values)
                values.append((curve - bounds[0]) / (bounds[1] - bounds[0]))
    return shares, interquartile_mean(np.array(values), axis=0)


def make_panels(count: int, height: float, columns: int = _COLUMNS) -> tuple[Any, list[Any]]:
    """Returns a picture, and its axes for as many panels of this height in inches."""
    from matplotlib.figure import Figure

    columns = min(count, columns)
    rows = math.ceil(count / columns)
    picture = Figure(figsize=(_SIZE[0] * columns, height * rows), layout="constrained")
    grid = picture.subplots(rows, columns, squeeze=False).flatten().tolist()
    for unused in grid[count:]:
        unused.set_visible(False)
    return picture, grid[:count]


def _color(number: int) -> str:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return f"C{number}" if number < 10 else to_hex(colormaps["Dark2"](number % 8))


def _legend_label(score: GroupScore) -> str:
    runs = len(score.group.runs)
    return _wrapped(f"{score.group.variant} ({runs} run{'s' if runs > 1 else ''})", _LEGEND)


def _height(names: Iterable[str]) -> float:
    """Returns the height in inches that names of several lines need below each other."""
    return sum(_LINE * (name.count("\n") + 1) + _GAP for name in names)


def _places(names: Sequence[str]) -> list[float]:
    """Returns where the middles of names are that stand below each other, from 0 downward, in inches."""
    return [-_height(names[:row]) - _height(names[row : row + 1]) / 2 for row in range(len(names))]


def _wrapped(name: str, width: int) -> str:
    return in_plot("\n".join(textwrap.wrap(name, width)))


def write_plot(picture: Any, path: pathlib.Path) -> None:
    """Writes a picture completely, or raises `CallboardError` and leaves what was there before."""
    content = io.BytesIO()
    picture.savefig(content, format=path.suffix.removeprefix(".") or None, dpi=120)
    with writing(f"the plot {path}"):
        write_file(path, content.getvalue())
