"""Evaluations that take too long."""

import pytest

from callboard.agents.impala import Impala
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.evaluation.evaluation_watch import EvaluationWatch
from callboard.launch.nodes.progress import Progress

EXPERIMENT = Experiment(agent=Impala(), env="CartPole-v1")


@pytest.fixture
def said():
    return []


@pytest.fixture
def clock():
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    return Clock()


def test_episodes_that_do_not_end_are_named_once_and_given_up(said, clock):
    watch = EvaluationWatch(5, 100.0, lambda: False, said.append, EXPERIMENT, clock)
    for clock.now in (0.0, *[59.0] * 10_000, 61.0, 62.0, 99.0):
        assert not watch.stopped()
    (line,) = said
    assert "no episode of the evaluation has ended within 60 s; each environment made 10,001 steps" in line
    assert line.endswith("; if they may never end, limit their length with --env-options.max_episode_steps 1000")
    clock.now = 101.0
    assert watch.stopped() and watch.timed_out
    assert (
        "0 of its 5 episodes ended within 100 s (evaluation_timeout); each environment made 10,004 steps"
        in watch.problem
    )
    assert "if they are only slow, raise evaluation_timeout" in watch.problem


def test_an_evaluation_that_is_only_slow_is_given_up(said, clock):
    watch = EvaluationWatch(5, 100.0, lambda: False, said.append, EXPERIMENT, clock)
    watch.episode_ended()
    clock.now = 70.0
    assert not watch.stopped() and said == []
    clock.now = 101.0
    assert watch.stopped()
    assert "1 of its 5 episodes ended" in watch.problem and "raise evaluation_timeout" in watch.problem


def test_who_stops_the_run_stops_it(said, clock):
    watch = EvaluationWatch(5, 100.0, lambda: True, said.append, EXPERIMENT, clock)
    assert watch.stopped() and not watch.timed_out


def test_slow_steps_are_not_taken_for_episodes_that_never_end(said, clock):
    watch = EvaluationWatch(5, 100.0, lambda: False, said.append, EXPERIMENT, clock)
    for clock.now in (*range(60), 61.0):
        assert not watch.stopped()
    assert said == [
        "no episode of the evaluation has ended within 60 s; each environment made 60 steps, 1.0 a second, so it "
        "may take long"
    ]
    clock.now = 101.0
    assert watch.stopped() and "never end" not in watch.problem
    assert watch.problem.endswith("may take long; raise evaluation_timeout, or evaluate fewer episodes")


def test_how_many_episodes_have_ended_is_shown(said, clock):
    progress = Progress()
    watch = EvaluationWatch(3, 100.0, lambda: False, said.append, EXPERIMENT, clock, progress.evaluates)
    shown = [progress.evaluation]
    for _ in range(3):
        watch.episode_ended()
        shown.append(progress.evaluation)
    assert shown == [(0, 3), (1, 3), (2, 3), None]
