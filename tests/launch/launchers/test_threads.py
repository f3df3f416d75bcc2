"""The threads launcher with small nodes: what ends a run."""

import launchpad as lp
import pytest

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers import threads
from callboard.launch.run_directory.layout import RunDirectory


class Screen:
    def notify(self, text):
        pass

    status = notify


class Waits:
    def run(self):
        lp.stop_event().wait()


@pytest.fixture
def outcome_of(tmp_path):
    """Runs a function as a node, beside a node that waits for the end of the run."""
    experiment = Experiment(agent=Impala(), env="CartPole-v1")
    run = Run(experiment, experiment.layout(), RunDirectory(tmp_path / "run"))

    def run_threads(function):
        program = lp.Program("own")
        program.add_node(lp.CourierNode(Waits), "waits")
        program.add_node(lp.PyNode(function), "own")
        outcome = threads.run(program, run, Screen())
        assert run.directory.experiment.exists()
        return outcome

    return run_threads


def test_a_node_ends_the_run_and_all_others_with_it(outcome_of):
    outcome = outcome_of(lp.stop)
    assert (outcome.reason, outcome.exit_code) == ("own/0 has called launchpad.stop()", 0)


def test_a_node_that_fails_ends_the_run_with_its_error(outcome_of):
    def fail():
        raise CallboardError("no such level")

    outcome = outcome_of(fail)
    assert (outcome.failed_node, outcome.error, outcome.exit_code) == ("own/0", "no such level", 1)
