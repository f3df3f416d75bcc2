"""Runs in a thread of their own: how they begin, what they report, and how they end."""

import threading
from types import SimpleNamespace

import pytest

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.run_outcome import Outcome
from callboard.launch.processes.stop_signals import stop_signals
from callboard.launch.program import make_program
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.runs.background_run import BackgroundRun, SessionEnded


class Screen:
    def __init__(self):
        self.received = []

    def status(self, status):
        self.received.append(status)

    def notify(self, text):
        self.received.append(text)


@pytest.fixture
def background(tmp_path):
    experiment = Experiment(agent=Impala(), env="CartPole-v1")
    program = make_program(Run(experiment, experiment.layout(), RunDirectory(tmp_path)))

    def make(launch, screen=None):
        return BackgroundRun(SimpleNamespace(program=program, launch=launch), screen or Screen())

    return make


def test_it_has_started_once_there_is_a_status(background):
    go, screen = threading.Event(), Screen()

    def launch(monitor):
        monitor.notify("begins")
        monitor.status({"stopping": False, "environment_steps": 3})
        go.wait()
        return Outcome()

    run = background(launch, screen)
    assert not run.exists
    run.start()
    assert run.exists and run.newest_status["environment_steps"] == 3
    assert screen.received == ["begins", run.newest_status]
    go.set()
    run.join()
    assert not run.exists and run.outcome == Outcome()


def test_a_run_whose_nodes_do_not_start_can_be_ended(background):
    def launch(monitor):
        outcome, stopped = Outcome(), threading.Event()
        with stop_signals(lambda number: (outcome.interrupted(number), stopped.set())):
            assert stopped.wait(60)
        return outcome

    run = background(launch)
    start = threading.Thread(target=run.start)
    start.start()
    run.close()
    start.join()
    assert run.outcome is not None and run.outcome.reason == "stopped by SIGINT"


def test_a_run_that_has_ended_says_why_and_takes_no_calls(background):
    run = background(lambda monitor: Outcome(reason="reached max_steps"))
    run.start()
    run.join()
    assert run.status() is None
    with pytest.raises(SessionEnded, match=r"the run has ended \(reached max_steps\)"):
        run.call("set_task", 1)
    run.close()


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (CallboardError("the port is in use"), "the port is in use"),
        (Outcome(exit_code=1, failed_node="actor/0", error="ValueError: no"), "actor/0 failed: ValueError: no"),
    ],
)
def test_a_failure_is_raised_at_the_start_and_by_every_call(background, outcome, message):
    def launch(monitor):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    run = background(launch)
    with pytest.raises(CallboardError, match=message):
        run.start()
    run.join()
    for _ in range(2):
        with pytest.raises(CallboardError, match=message):
            run.call("status")
