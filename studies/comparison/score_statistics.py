"""Statistics over runs: interquartile means, bootstrap intervals, steps to a goal, and curves with their spread.

The method is that of rliable, Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (https://arxiv.org/abs/2108.13264): the interquartile mean of the scores of all runs, and percentile
intervals of a bootstrap that is stratified by task, which resamples the runs of each task separately.  Performance
profiles and the probability of improvement are in its sections 4.2 and 4.3.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...launch.experiments.stop_conditions import reaches
from .run_results import RunResult

Mode = Literal["max", "min"]
Spread = Literal["std", "range", "interval"]
Statistic = Callable[..., Any]
"""Called with scores of any shape and with `axis`, over which it computes one number."""
_CUT = 0.25
_GRID_POINTS = 200
_RESAMPLES = 2000
"""Of a performance profile."""


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class Reached(NamedTuple):
    """When a run reached its goal first."""

    steps: float
    seconds: float


class Profile(NamedTuple):
    """A performance profile: the share of runs whose normalized score is above each threshold, `G` of them."""

    thresholds: NDArray[np.float64]
    share: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class CurveSpread(NamedTuple):
    """A curve over the runs of a group, `G` points."""

    x: NDArray[np.float64]
    center: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def interquartile_mean(scores: ArrayLike, axis: int | None = None) -> Any:
    """Returns the mean without the lowest and the highest quarter, each rounded down to a whole number of scores.

    Of three scores or less nothing is cut, and it is the mean.

    Args:
      scores: any shape.
      axis: axis that the mean is over; None for all scores.
    """
    from scipy import stats  # Takes most of a second, which would delay the start of every `callboard train`.

    return stats.trim_mean(scores, _CUT, axis=axis)


def bootstrap_interval(
    samples: Sequence[ArrayLike],
    statistic: Statistic = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = 10_000,
) -> Interval | None:
    """Returns the percentile interval of a statistic over all scores, by a stratified bootstrap; deterministic.

    Args:
      samples: the scores of each task, float `[n]`; the runs of each task are resampled separately.
      statistic: the statistic of all scores together.
      confidence: share of the resamples inside the interval.
      resamples: number of resamples.

    Returns:
      The interval; None if a task has only one run.
    """
    from scipy import stats  # Imported late, as above.

    arrays = [np.asarray(sample, np.float64) for sample in samples]
    if not arrays or any(array.size < 2 for array in arrays):
        return None

    def over_all(*resampled: NDArray[np.float64], axis: int) -> Any:
        return statistic(np.concatenate(resampled, axis=axis), axis=axis)

    found = stats.bootstrap(
        arrays,
        over_all,
        n_resamples=resamples,
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        random_state=np.random.default_rng(0),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


def performance_profile(
    samples: Sequence[ArrayLike],
    thresholds: ArrayLike,
    confidence: float = 0.95,
) -> Profile:
    """Returns the share of all runs whose score is above each threshold, with a stratified bootstrap at each.

    Every task has the same weight, whatever its number of runs (Agarwal et al. 2021, equation of the score
    distributions in section 4.2).

    Args:
      samples: normalized scores of each task, float `[n]`.
      thresholds: float `[G]`.
      confidence: share of the resamples inside the band, which is that of each threshold by itself.
    """
    grid = np.asarray(thresholds, np.float64)
    random = np.random.default_rng(0)
    share, resampled = np.zeros(grid.size), np.zeros((_RESAMPLES, grid.size))
    for sample in samples:
        above = np.asarray(sample, np.float64)[:, None] > grid
        share += above.mean(axis=0) / len(samples)
        chosen = random.integers(len(above), size=(_RESAMPLES, len(above)))
        for run in chosen.T:
            resampled += above[run] / (len(above) * len(samples))
    return Profile(grid, share, *_percentiles(resampled, confidence))


def probability_of_improvement(
    samples: Sequence[ArrayLike],
    others: Sequence[ArrayLike],
    mode: Mode = "max",
    confidence: float = 0.95,
    resamples: int = 2000,
) -> tuple[float, Interval | None]:
    """Returns how probable it is that a run is better than one of another variant, on a task chosen at random.

    It is the mean over tasks of the Mann-Whitney statistic divided by the number of pairs, in which equal scores count
    half (Agarwal et al. 2021, section 4.3).

    Args:
      samples: scores of each task, float `[n]`.
      others: scores of the other variant in the same tasks, float `[m]`.
      mode: whether higher scores are better.
      confidence: share of the resamples inside the interval.
      resamples: number of resamples.

    Returns:
      The probability, and its interval by a bootstrap that is stratified by task and variant; None for the interval if
      either has only one run in a task.
    """
    random = np.random.default_rng(0)
    probability, resampled = 0.0, np.zeros(resamples)
    for sample, other in zip(samples, others, strict=True):
        ours, theirs = np.asarray(sample, np.float64)[:, None], np.asarray(other, np.float64)
        better = (ours > theirs) if mode == "max" else (ours < theirs)
        wins = better + 0.5 * (ours == theirs)
        probability += float(wins.mean()) / len(samples)
        rows = random.integers(wins.shape[0], size=(resamples, wins.shape[0], 1))
        columns = random.integers(wins.shape[1], size=(resamples, 1, wins.shape[1]))
        resampled += wins[rows, columns].mean(axis=(1, 2)) / len(samples)
    if any(np.size(scores) < 2 for scores in (*samples, *others)):
        return probability, None
    low, high = _percentiles(resampled, confidence)
    return probability, Interval(float(low), float(high))


def _percentiles(resampled: NDArray[np.float64], confidence: float) -> Any:
    outside = 50 * (1 - confidence)
    return np.percentile(resampled, [outside, 100 - outside], axis=0)


def first_reached(run: RunResult, goal: float, mode: Mode = "max") -> Reached | None:
    """Returns when the metric was first at the goal or beyond it; None if it never was."""
    sign = 1 if mode == "max" else -1
    for index, value in enumerate(run.values):
        if reaches(sign * value, sign * goal):
            return Reached(float(run.steps[index]), float(run.seconds[index]))
    return None


def curve_spread(
    runs: Sequence[RunResult], over: Literal["steps", "seconds"] = "steps", spread: Spread = "std"
) -> CurveSpread:
    """Returns the mean curve of runs and its spread, linear between the values of each run.

    It begins where all runs have a value.  A run that has ended keeps its last value: without the runs that reached
    their goal, the mean would be that of the slow ones.

    Args:
      runs: runs of one group.
      over: what the values are a function of.
      spread: `std` is the standard deviation on both sides of the mean, `range` from the lowest to the highest run,
        `interval` the 95% bootstrap interval of the mean.
    """
    axes = [run.steps if over == "steps" else run.seconds for run in runs]
    grid = np.linspace(max(axis[0] for axis in axes), max(axis[-1] for axis in axes), _GRID_POINTS)
    values = np.stack([np.interp(grid, axis, run.values) for run, axis in zip(runs, axes, strict=True)])
    low, high = np.array([_around(point, spread) for point in values.T]).T
    return CurveSpread(grid, values.mean(axis=0), low, high)


def _around(values: NDArray[np.float64], spread: Spread) -> tuple[float, float]:
    if spread == "range":
        return float(values.min()), float(values.max())
    if spread == "interval":
        return bootstrap_interval([values], np.mean, resamples=1000) or (float(values.mean()), float(values.mean()))
    return float(values.mean() - values.std()), float(values.mean() + values.std())
