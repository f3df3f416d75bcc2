"""Interquartile means, bootstrap intervals, goals and curves, each against a plain NumPy loop."""

import itertools

import numpy as np
import pytest
from synthetic_runs import write_run

from callboard.studies.comparison.run_results import read_results
from callboard.studies.comparison.score_statistics import (
    bootstrap_interval,
    curve_spread,
    first_reached,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)

SCORES = np.array([3.0, 500.0, 120.0, 480.0, 90.0, 333.0, 12.0, 475.0, 200.0])


def plain_iqm(scores):
    """Agarwal et al. 2021, section 4.3: the mean of the middle half."""
    ordered = sorted(scores)
    cut = int(0.25 * len(ordered))
    total = 0.0
    for score in ordered[cut : len(ordered) - cut]:
        total += score
    return total / (len(ordered) - 2 * cut)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9])
def test_the_interquartile_mean_is_that_of_the_middle_half(count):
    assert interquartile_mean(SCORES[:count]) == pytest.approx(plain_iqm(SCORES[:count]))


def test_of_three_scores_nothing_is_cut():
    assert interquartile_mean([1.0, 2.0, 9.0]) == pytest.approx(4.0)


def test_the_bootstrap_interval_is_that_of_all_possible_resamples():
    scores = SCORES[:5]
    # All 5^5 resamples, each as likely as any other.
    every = [plain_iqm(scores[list(chosen)]) for chosen in itertools.product(range(5), repeat=5)]
    interval = bootstrap_interval([scores], confidence=0.9, resamples=20_000)
    for found, share in zip(interval, (5, 95), strict=True):
        near = np.percentile(every, [share - 0.7, share + 0.7])
        assert near[0] - 1e-9 <= found <= near[1] + 1e-9


def test_each_task_is_resampled_separately():
    first, second = SCORES[:3], SCORES[3:6] / 100
    every = []
    for chosen in itertools.product(range(3), repeat=3):
        for others in itertools.product(range(3), repeat=3):
            every.append(plain_iqm([*first[list(chosen)], *second[list(others)]]))
    interval = bootstrap_interval([first, second], confidence=0.9, resamples=20_000)
    for found, share in zip(interval, (5, 95), strict=True):
        near = np.percentile(every, [share - 1, share + 1])
        assert near[0] - 1e-9 <= found <= near[1] + 1e-9


def test_an_interval_is_deterministic_and_needs_two_runs_of_each_task():
    assert bootstrap_interval([SCORES], resamples=100) == bootstrap_interval([SCORES], resamples=100)
    assert bootstrap_interval([SCORES[:1]]) is None
    assert bootstrap_interval([SCORES, SCORES[:1]]) is None
    assert bootstrap_interval([]) is None
    assert bootstrap_interval([[500.0, 500.0, 500.0]], resamples=10) == (500.0, 500.0)


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "a", [(1000, 10.0), (2000, 30.0), (4000, 20.0)], seed=1)
    write_run(tmp_path / "b", [(1500, 0.0), (3000, 60.0)], seed=2)
    return read_results([str(tmp_path)]).runs


def test_the_goal_is_first_reached_at(runs):
    assert first_reached(runs[0], 20.0) == (2000, 2)
    assert first_reached(runs[1], 60.0) == (3000, 3)
    assert first_reached(runs[0], 20.00001) == (2000, 2), "rewards are float32"
    assert first_reached(runs[0], 31.0) is None
    assert first_reached(runs[1], 0.0, "min") == (1500, 1.5)
    assert first_reached(runs[0], 9.0, "min") is None


def plain_curve(points, x):
    """Linear between the two points around x; the last value after all of them."""
    if x >= points[-1][0]:
        return points[-1][1]
    for (before, low), (after, high) in zip(points, points[1:], strict=False):
        if before <= x <= after:
            return low + (high - low) * (x - before) / (after - before)
    raise AssertionError(x)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("over", ["steps", "seconds"])
@pytest.mark.parametrize("spread", ["std", "range"])
def test_a_curve_is_the_mean_of_runs_that_keep_their_last_values(runs, over, spread):
    curve = curve_spread(runs, over, spread)
    scale = 1 if over == "steps" else 1000
    assert (curve.x[0] * scale, curve.x[-1] * scale) == (1500, 4000)
    for x, center, low, high in zip(*curve, strict=True):
        values = [plain_curve(list(zip(run.steps, run.values, strict=True)), round(x * scale, 6)) for run in runs]
        mean = sum(values) / len(values)
        deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
        around = (min(values), max(values)) if spread == "range" else (mean - deviation, mean + deviation)
        np.testing.assert_allclose((center, low, high), (mean, *around), atol=1e-6)


def test_the_interval_of_a_curve_is_inside_its_range(runs):
    curve, whole = curve_spread(runs, spread="interval"), curve_spread(runs, spread="range")
    assert np.all(curve.low >= whole.low - 1e-9) and np.all(curve.high <= whole.high + 1e-9)
    assert np.all(curve.low <= curve.center) and np.all(curve.center <= curve.high)


def plain_probability(samples, others):
    """Agarwal et al. 2021, section 4.3: the mean over tasks of the share of pairs that are won, ties half."""
    total = 0.0
    for sample, other in zip(samples, others, strict=True):
        won = 0.0
        for score in sample:
            for beaten in other:
                won += 1.0 if score > beaten else 0.5 if score == beaten else 0.0
        total += won / (len(sample) * len(other))
    return total / len(samples)


def test_the_probability_of_improvement_is_that_of_all_pairs_in_each_task():
    samples, others = [[1.0, 5.0, 3.0], [2.0, 2.0]], [[2.0, 3.0], [2.0, 1.0, 9.0, 0.0]]
    expected = plain_probability(samples, others)
    probability, interval = probability_of_improvement(samples, others)
    assert probability == pytest.approx(expected) and interval.low < expected < interval.high
    assert probability_of_improvement(others, samples)[0] == pytest.approx(1 - expected)
    assert probability_of_improvement(samples, others, mode="min")[0] == pytest.approx(1 - expected)
    assert probability_of_improvement([[3.0]], [[2.0, 1.0]]) == (1.0, None)
    assert probability_of_improvement([[3.0, 4.0]], [[2.0, 1.0]]) == (1.0, (1.0, 1.0))


def test_the_interval_of_the_probability_is_that_of_all_possible_resamples():
    sample, other = [1.0, 4.0, 6.0], [2.0, 5.0]
    every = [
        plain_probability([rows], [columns])
        for rows in itertools.product(sample, repeat=3)
        for columns in itertools.product(other, repeat=2)
    ]
    # Between two of the values that the statistic may have, the percentile of chance is theirs as well.
    low, high = np.percentile(every, [7, 93])
    assert (low, high) == tuple(np.percentile(every, [8, 92])) == tuple(np.percentile(every, [6, 94]))
    _, interval = probability_of_improvement([sample], [other], confidence=0.86, resamples=20_000)
    assert interval == pytest.approx((low, high))


def test_a_performance_profile_is_the_share_of_runs_above_each_threshold_with_equal_tasks():
    samples = [[0.0, 0.5, 1.0, 1.0], [0.2, 0.9]]
    thresholds = [-1.0, 0.0, 0.3, 0.95, 1.0]
    profile = performance_profile(samples, thresholds)
    expected = [
        sum(sum(score > threshold for score in sample) / len(sample) for sample in samples) / 2
        for threshold in thresholds
    ]
    assert profile.share == pytest.approx(expected)
    assert (profile.low <= profile.share).all() and (profile.share <= profile.high).all()
    assert profile.low[0] == profile.high[0] == 1.0 and profile.high[-1] == 0.0
    every = [
        (np.mean(np.array(first) > 0.3) + np.mean(np.array(second) > 0.3)) / 2
        for first in itertools.product(samples[0], repeat=4)
        for second in itertools.product(samples[1], repeat=2)
    ]
    assert (profile.low[2], profile.high[2]) == pytest.approx(np.percentile(every, [2.5, 97.5]), abs=0.13)
