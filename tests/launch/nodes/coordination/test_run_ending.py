"""The end of a run, with a clock that the test moves."""

import dataclasses

import pytest

from callboard.launch.experiments.settings import parse_experiment
from callboard.launch.nodes.coordination.run_limits import RunEnding
from callboard.launch.nodes.coordination.stopping_rules import Stop

LIMIT = Stop("reached max_steps", final_evaluation=True)


@pytest.fixture
def lines():
    return []


def ending_of(lines, clock, **settings):
    experiment = dataclasses.replace(parse_experiment("impala", {}, ["--env=CartPole-v1"]), **settings)
    return RunEnding(experiment, lines.append, clock)


def test_nodes_stop_once_after_the_final_evaluation(lines, clock):
    ending = ending_of(lines, clock, evaluation_episodes=20)
    assert not ending and not ending.stops_now(0, learned=True)
    ending.begin(LIMIT)
    assert ending and ending.reason == "reached max_steps" and not ending.stops_now(0, learned=True)
    assert lines == ["reached max_steps; evaluating the final policy over 20 episodes"]
    ending.finish_evaluation()
    assert ending.stops_now(0, learned=True) and not ending.stops_now(0, learned=True)


@pytest.mark.parametrize("stop, evaluator", [(Stop("patience is over", False), True), (LIMIT, False)])
def test_nodes_stop_at_once_where_no_evaluation_is_of_use(lines, clock, stop, evaluator):
    ending = ending_of(lines, clock, evaluator=evaluator)
    ending.begin(stop)
    assert ending.stops_now(0, learned=True) and lines == []


def test_a_request_ends_the_final_evaluation_and_keeps_the_reason(lines, clock):
    ending = ending_of(lines, clock)
    ending.begin(LIMIT)
    ending.request("stopped by its session")
    assert ending.stops_now(0, learned=True) and ending.reason == "reached max_steps"


def test_the_final_evaluation_is_not_awaited_when_the_evaluator_is_silent(lines, clock):
    ending = ending_of(lines, clock)
    ending.begin(LIMIT)
    for _ in range(5):
        clock.now += 59.0
        assert not ending.stops_now(0, learned=True)
        ending.hear_evaluator()
    clock.now += 61.0
    assert ending.stops_now(0, learned=True) and lines[-1] == "the final policy was not evaluated in time"


def test_the_final_evaluation_has_a_deadline(lines, clock):
    ending = ending_of(lines, clock, evaluation_timeout=300.0)
    ending.begin(LIMIT)
    while clock.now < 520.0:
        assert not ending.stops_now(0, learned=True)
        clock.now += 30.0
        ending.hear_evaluator()
    clock.now += 1.0
    ending.hear_evaluator()
    assert ending.stops_now(0, learned=True)


def test_the_run_ends_once_the_learners_have_caught_up(lines, clock):
    ending = ending_of(lines, clock, evaluator=False)
    ending.begin(LIMIT._replace(learners_catch_up=True))
    for steps in range(4):
        assert not ending.stops_now(steps, learned=False)
        clock.now += 100.0
    assert lines == ["the learner makes the steps that are left for these environment steps"]
    assert ending.stops_now(4, learned=True)


def test_the_final_evaluation_has_all_its_time_after_the_last_learner_step(lines, clock):
    ending = ending_of(lines, clock, evaluation_timeout=300.0)
    ending.begin(LIMIT._replace(learners_catch_up=True))
    for steps in range(20):
        assert not ending.stops_now(steps, learned=False)
        clock.now += 100.0
    assert not ending.stops_now(20, learned=True)
    clock.now += 59.0
    assert not ending.stops_now(20, learned=True)
    clock.now += 2.0
    assert ending.stops_now(20, learned=True) and lines[-1] == "the final policy was not evaluated in time"


def test_a_learner_that_makes_no_step_is_not_awaited(lines, clock):
    ending = ending_of(lines, clock, evaluator=False)
    ending.begin(LIMIT._replace(learners_catch_up=True))
    assert not ending.stops_now(7, learned=False)
    clock.now += 119.0
    assert not ending.stops_now(7, learned=False)
    clock.now += 2.0
    assert ending.stops_now(7, learned=False)
    assert lines[-1] == "the learner has made no step for 120 s: it is left behind"


def test_a_request_ends_the_last_learner_steps(lines, clock):
    ending = ending_of(lines, clock)
    ending.begin(LIMIT._replace(learners_catch_up=True))
    ending.request("stopped by its session")
    assert ending.stops_now(0, learned=False)
