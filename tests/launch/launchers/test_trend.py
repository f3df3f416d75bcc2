"""Time left, and whether the return rises."""

import math

import pytest

from callboard.launch.launchers.trend import TimeLeft, Trend, duration


def test_the_time_left_follows_from_the_rate_of_the_last_half_minute():
    left = TimeLeft()
    assert left.update(0.0, 0, 1000) is None
    for second in range(1, 41):
        seconds = left.update(float(second), 10 * second, 1000)
    assert seconds == pytest.approx(60.0)
    for second in range(41, 91):
        seconds = left.update(float(second), 400, 1000)
    assert seconds is None  # Nothing has been done for half a minute.
    assert left.update(91.0, 1000, 1000) == 0.0


def test_a_run_that_goes_back_begins_anew():
    left = TimeLeft()
    left.update(0.0, 500, 1000)
    assert left.update(1.0, 100, 1000) is None
    assert left.update(2.0, 200, 1000) == pytest.approx(8.0)


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
