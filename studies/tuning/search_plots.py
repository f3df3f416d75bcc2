"""A plot of a search: the metric over trials and against each setting, with Matplotlib."""

import math
import pathlib
from collections.abc import Sequence
from typing import Any

from ...errors import CallboardError
from ...launch.plain_names import in_plot
from ...messages.install_commands import install_command
from ..comparison.curve_plots import write_plot
from .records import Trial
from .search_definition import Tuning
from .search_space import Choice

_COLUMNS = 3
_SIZE = (4.6, 3.6)
"""Size of one panel in inches."""
_COLORS = {"done": "tab:blue", "stopped early": "tab:orange", "unfinished": "tab:gray", "failed": "tab:red"}


def plot_search(tuning: Tuning, trials: Sequence[Trial], path: pathlib.Path) -> None:
    """Writes a plot with the best value of each trial over their numbers, and against each setting that was searched.

    Raises:
      CallboardError: Matplotlib is missing, no trial has a value, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
    except ImportError as error:
        raise CallboardError(f"plots need Matplotlib ({error}): {install_command('callboard[plot]')}") from error
    with_value = [trial for trial in sorted(trials, key=lambda trial: trial.number) if trial.best is not None]
    if not with_value:
        raise CallboardError(f"there is nothing to plot: no trial has a value of {tuning.metric} yet")
    domains = tuning.space().domains
    count = 1 + len(domains)
    columns = min(_COLUMNS, count)
    rows = math.ceil(count / columns)
    picture = Figure(figsize=(_SIZE[0] * columns, _SIZE[1] * rows), layout="constrained")
    panels = picture.subplots(rows, columns, squeeze=False, sharey=True).flatten().tolist()
    for unused in panels[count:]:
        unused.set_visible(False)
    _plot_trials(tuning, with_value, panels[0])
    for (key, domain), axes in zip(domains.items(), panels[1:count], strict=True):
        axes.set_xlabel(in_plot(key.removeprefix("agent.")))
        places = [domain.place(trial.best_values[key]) for trial in with_value]
        _scatter(axes, places, with_value)
        if isinstance(domain, Choice):
            axes.set_xticks(range(len(domain.options)), [in_plot(str(option)) for option in domain.options])
        elif domain.kind == "loguniform":
            _make_logarithmic(axes, places)
    for axes in panels[::columns]:
        axes.set_ylabel(f"best {in_plot(tuning.metric)}")
    states = dict.fromkeys(trial.state for trial in with_value)
    handles = [Line2D([], [], marker="o", linestyle="", color=_COLORS[state], label=state) for state in states]
    handles.append(Line2D([], [], color="tab:green", linewidth=1, label="best so far"))
    picture.legend(handles=handles, fontsize="small", loc="outside lower center", ncols=len(handles), frameon=False)
    write_plot(picture, path)


def best_so_far(trials: Sequence[Trial], mode: str) -> list[float]:
    """Returns the best value of each trial and all before it; all have a value."""
    best: list[float] = []
    for trial in trials:
        assert trial.best is not None
        better = max if mode == "max" else min
        best.append(better(best[-1], trial.best) if best else trial.best)
    return best


def _plot_trials(tuning: Tuning, trials: Sequence[Trial], axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    numbers = [trial.number for trial in trials]
    axes.step(numbers, best_so_far(trials, tuning.mode), where="post", color="tab:green", linewidth=1)
    _scatter(axes, numbers, trials)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("trial")


def _make_logarithmic(axes: Any, places: Sequence[float]) -> None:
    """Gives an axis a logarithmic scale; where it has less than two powers of ten, other numbers are labeled too."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    decades = math.log10(max(places) / min(places))
    if decades < 2:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades > 0.5 else (1, 1.5, 2, 3, 5, 7)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())


def _scatter(axes: Any, places: Sequence[float], trials: Sequence[Trial]) -> None:
    axes.scatter(places, [trial.best for trial in trials], c=[_COLORS[trial.state] for trial in trials], s=18, zorder=3)
