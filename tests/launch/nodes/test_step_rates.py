"""Steps per second over about the last ten seconds."""

from callboard.launch.nodes.step_rates import StepRates


def test_rates_are_those_of_the_last_ten_seconds():
    rates = StepRates()
    assert rates.update(0.0, 0, 0) == {"actor/steps_per_second": 0.0, "learner/steps_per_second": 0.0}
    assert rates.update(2.0, 100, 10) == {"actor/steps_per_second": 50.0, "learner/steps_per_second": 5.0}
    for second in range(4, 30, 2):
        found = rates.update(float(second), 100, 10 + second)
    assert found == {"actor/steps_per_second": 0.0, "learner/steps_per_second": 1.0}
