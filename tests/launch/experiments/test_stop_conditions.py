"""Conditions that end a run: which are accepted, when they hold, and how others are refused."""

import math

import numpy as np
import pytest

from callboard.errors import CallboardError
from callboard.launch.experiments.stop_conditions import (
    Condition,
    check_conditions,
    metrics_of_run,
    parse_conditions,
    reaches,
)


@pytest.mark.parametrize(
    "stop_when, expected",
    [
        ((), []),
        ("actor/episode_return >= 200", [("actor/episode_return", ">=", 200.0)]),
        ("learner/loss<-1e-3", [("learner/loss", "<", -1e-3)]),
        ("episodes>5, learner/entropy <= .5", [("episodes", ">", 5.0), ("learner/entropy", "<=", 0.5)]),
        (["replay/fill_0 > 0.5", "time < inf"], [("replay/fill_0", ">", 0.5), ("time", "<", math.inf)]),
    ],
)
def test_conditions_are_read(stop_when, expected):
    assert parse_conditions(stop_when) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "5", "episodes", "episodes >=", ">= 5", "episodes = 5", "episodes == 5", "episodes >= x"]
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(CallboardError, match="is no condition: write METRIC >= NUMBER"):
        parse_conditions(text)
    with pytest.raises(CallboardError, match="is no condition"):
        parse_conditions(["episodes > 1", text])
    with pytest.raises(CallboardError, match="is no condition"):
        parse_conditions("episodes >= nan")


@pytest.mark.parametrize("operator, holds", [(">=", (0, 1, 1)), (">", (0, 0, 1)), ("<=", (1, 1, 0)), ("<", (1, 0, 0))])
def test_a_condition_compares(operator, holds):
    condition = Condition("x", operator, 2.0)
    assert tuple(condition.holds({"x": value}) for value in (1, 2, 3)) == tuple(map(bool, holds))
    assert not condition.holds({}) and not condition.holds({"x": math.nan})


@pytest.mark.parametrize("value", [float(np.float32(0.7)), np.mean([0.7] * 10), -float(np.float32(0.1)), 500.0, 1e-30])
def test_returns_reach_a_goal_as_exactly_as_rewards_are_known(value):
    goal = float(f"{value:.6g}")
    for operator, holds in ((">=", True), ("<=", True), (">", False), ("<", False)):
        assert Condition("x", operator, goal).holds({"x": value}) is holds
    assert reaches(value, goal) and reaches(value + abs(value) / 100, goal)
    assert not reaches(value - abs(value) / 1e5, goal) and not reaches(math.nan, goal)


def check(stop_when, agent="impala", inference=0, evaluator=1):
    nodes = {"replay": 2, "inference": inference, "evaluator": evaluator, "actor": 3, "learner": 1}
    check_conditions(stop_when, agent, nodes)


@pytest.mark.parametrize(
    "stop_when, settings, message",
    [
        ("actor/epsode_return > 1", {}, "unknown metric in stop_when 'actor/epsode_return'; did you mean 'actor/episo"),
        ("learner/los > 1", {}, "did you mean 'learner/loss'"),
        ("zzzz > 1", {}, 'the page "Metrics" of the documentation lists all'),
        ("replay/fill_2 > 1", {}, "unknown metric in stop_when 'replay/fill_2'"),
        ("replay/fill_N > 1", {}, "did you mean 'replay/fill_"),
        ("POLICY/score > 1", {}, "unknown metric in stop_when 'POLICY/score'"),
        ("episode/NAME > 1", {}, "unknown metric in stop_when 'episode/NAME'"),
        ("inference/actors_per_batch_0 > 1", {}, "unknown metric"),
        ("evaluator/return > 1", {"evaluator": 0}, "needs the evaluator"),
        ("actor/memory_3 > 1", {}, "unknown metric in stop_when 'actor/memory_3'"),
        ("learner/memory_1 > 1", {}, "did you mean 'learner/memory_0'"),
        (
            "learner/temperature > 1",
            {},
            "cannot work: learner/temperature is a metric of sac, drq, cql, dmpo, not of impala",
        ),
    ],
)
def test_metrics_that_the_run_does_not_have_are_refused(stop_when, settings, message):
    with pytest.raises(CallboardError, match=message):
        check(stop_when, **settings)


def test_metrics_that_the_run_has_are_accepted():
    check("replay/fill_1 > 0.5, learner/loss < 0, evaluator/return > 1")
    check("inference/actors_per_batch_1 > 1, inference/memory_1 > 1", inference=2)
    check("actor/memory_2 > 1, learner/memory_0 > 1, evaluator/memory_0 > 1")
    check("learner/temperature < 1", agent="sac")
    # An agent of the user's own may report any.
    check("learner/own > 1", agent="module:Agent")
    check("learner/own > 1", agent=None)
    assert "learner/policy_lag" in metrics_of_run({})
