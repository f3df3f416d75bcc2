"""Plots of a data set, with Matplotlib: returns, lengths and actions."""

import math
import pathlib

import numpy as np

from ...environments.recorded.dataset_summary import DatasetInfo
from ...launch.plain_names import in_plot
from ..comparison.curve_plots import make_panels, write_plot

_MOST_ACTIONS = 10
"""Choices and numbers of an action that are shown."""
_BINS = 40


def plot_dataset(info: DatasetInfo, path: pathlib.Path) -> None:
    """Writes histograms of returns, lengths and actions, and the return of each episode in order.

    Args:
      info: the data set.
      path: a file that `curve_plots.check_plot` accepts.

    Raises:
      CallboardError: the file cannot be written.
    """
    shown = info.actions[:_MOST_ACTIONS]
    picture, axes = make_panels(3 + len(shown), 2.6)
    order, returns, lengths, *of_actions = axes
    episodes = np.arange(len(info.returns))
    for ended, label in ((info.terminated, "terminated"), (~info.terminated, "cut off")):
        if ended.any():
            order.plot(episodes[ended], info.returns[ended], ".", markersize=3, label=label)
    for panel, axis in ((order, "x"), (returns, "y"), (lengths, "both")):
        panel.locator_params(axis=axis, integer=True)
    order.set_xlabel("episode, in the order of recording")
    order.set_ylabel("return")
    if len(episodes):
        order.legend(fontsize="small")
    for panel, values, name in ((returns, info.returns, "return"), (lengths, info.lengths, "steps of an episode")):
        panel.hist(values, _bins(values))
        panel.set_xlabel(name)
        panel.set_ylabel("episodes")
    for panel, one in zip(of_actions, shown, strict=True):
        if one.choices is None:
            panel.hist(one.values, _bins(one.values))
            panel.set_ylabel("steps")
        else:
            panel.bar(one.first + np.arange(one.choices), one.fractions)
            panel.locator_params(axis="x", integer=True)
            panel.set_ylabel("fraction of steps")
        panel.set_xlabel(f"action {in_plot(one.name)}".strip())
    if len(info.actions) > len(shown):
        picture.supxlabel(
            f"{len(info.actions) - len(shown)} further parts of the action are not shown", fontsize="small"
        )
    picture.suptitle(in_plot(info.name))
    write_plot(picture, path)


def _bins(values: np.ndarray) -> int:
    """Returns a number of bins that suits the number of different values."""
    different = len(np.unique(values))
    return max(1, min(_BINS, different, 2 * math.isqrt(max(1, len(values)))))
