"""Steps per second over about the last ten seconds, or over some learner steps."""

import pytest

from callboard.launch.nodes.coordination.run_metrics import RateWindow, StepRates


def test_rates_are_those_of_the_last_ten_seconds():
    rates = StepRates()
    assert rates.update(0.0, 0, 0) == {"actor/steps_per_second": 0.0, "learner/steps_per_second": 0.0}
    assert rates.update(2.0, 100, 10) == {"actor/steps_per_second": 50.0, "learner/steps_per_second": 5.0}
    for second in range(4, 30, 2):
        found = rates.update(float(second), 100, 10 + second)
    assert found == {"actor/steps_per_second": 0.0, "learner/steps_per_second": 1.0}


def test_where_actors_and_learner_work_in_turn_the_rate_is_that_of_whole_turns():
    """Turns of 6 s in which actors make 16,000 steps, and of 34 s in which the learner makes one."""
    rates, found = StepRates(), []
    for second in range(1000):
        turn, since = divmod(second, 40)
        steps = 16000 * turn + 16000 * min(since, 6) // 6
        found.append(rates.update(float(second), steps, turn))
    for rate in found[300:]:
        assert 400 <= rate["actor/steps_per_second"] <= 490
        assert 0.02 <= rate["learner/steps_per_second"] <= 0.025
    stopped = [rates.update(1000.0 + second, steps, turn) for second in range(0, 2000, 2)]
    assert stopped[-1]["actor/steps_per_second"] < 40


def test_a_window_has_the_length_that_is_given_and_begins_anew_where_a_count_goes_back():
    window = RateWindow(30.0)
    for second in range(100):
        found = window.update(float(second), 10 * second, 2 * second)
    assert found == pytest.approx((31.0, 310, 62), rel=0.05)
    assert window.update(100.0, 500, 100) == (0.0, 0, 0)
    assert window.update(101.0, 600, 101) == (1.0, 100, 1)
