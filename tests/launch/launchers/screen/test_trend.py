"""Time left, and whether the return rises."""

import math

import pytest

from callboard.launch.launchers.screen.trend import Trend, duration, rate, time_left


def test_the_time_left_follows_from_the_rate():
    assert time_left(remaining=600, done=300, seconds=30.0) == 60.0
    assert time_left(remaining=600, done=0, seconds=30.0) is None
    assert time_left(remaining=0, done=0, seconds=0.0) == time_left(remaining=-5, done=10, seconds=1.0) == 0.0


@pytest.mark.parametrize(
    "values, arrow",
    [
        ([1.0, 2.0, 3.0], ""),
        ([1.0, 2.0, 3.0, 4.0], "↗"),
        ([-1.0, -2.0, -3.0, -4.0], "↘"),
        ([100.0, 101.0, 100.0, 101.0], "→"),
        ([1.0, 2.0, 2.0, 2.0], ""),
        ([1.0, 2.0, 3.0, 4.0, math.nan], ""),
    ],
)
def test_a_trend_compares_the_newer_half_with_the_older_one(values, arrow):
    trend = Trend()
    for value in values:
        shown = trend.update(value)
    assert shown == arrow


@pytest.mark.parametrize(
    "seconds, text",
    [(0.4, "0 s"), (119, "119 s"), (180, "3 min"), (7500, "2 h 05 min"), (200000, "2 d 7 h"), (-1, "0 s")],
)
def test_durations_have_at_most_two_units(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("per_second", "text"), [(0, "0.0"), (1.06, "1.1"), (42.74, "42.7"), (99.96, "100"), (4021.4, "4,021")]
)
def test_low_rates_have_a_decimal(per_second, text):
    assert rate(per_second) == text
