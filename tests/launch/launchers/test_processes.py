"""The processes launcher: what ends a run, what cannot start, and that nothing outlives the launcher."""

import queue

import launchpad as lp
import pytest

from callboard.agents.impala import Impala
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers import processes
from callboard.launch.launchers.node_processes.forkserver import ForkServer
from callboard.launch.launchers.processes import ProcessWorker
from callboard.launch.launchers.supervision.supervisor import Exit
from callboard.launch.nodes.user_node import UserNode
from callboard.launch.run_directory.layout import RunDirectory
from callboard.runtime.deadlines import wait_until


class Screen:
    def notify(self, text):
        pass

    status = notify


@pytest.fixture
def run(tmp_path):
    experiment = Experiment(agent=Impala(), env="CartPole-v1")
    return Run(experiment, experiment.layout(), RunDirectory(tmp_path / "run"))


@pytest.fixture
def events():
    return queue.SimpleQueue()


@pytest.fixture
def worker(run, events):
    return ProcessWorker(UserNode("own/0", lp.PyNode(print)), None, run.directory, events)


def stop_once_another_has_begun(log):
    assert wait_until(lambda: log.exists() and "begins, process" in log.read_text(), 60)
    lp.stop()


@pytest.mark.slow("daily")
def test_a_node_ends_the_run_and_all_others_with_it(run):
    program = lp.Program("own")
    program.add_node(lp.PyNode(lp.wait_for_stop), "waits")
    program.add_node(lp.PyNode(stop_once_another_has_begun, run.directory.log("waits/0")), "own")
    outcome = processes.run(program, run, Screen())
    assert (outcome.reason, outcome.exit_code) == ("own/0 has called launchpad.stop()", 0)
    logs = {path.name: path.read_text() for path in run.directory.path.glob("logs/*")}
    assert set(logs) == {"own-0.log", "waits-0.log"} and "waits/0 begins, process" in logs["waits-0.log"]


@pytest.mark.parametrize("order, clean", [("stop", True), ("kill", False)])
def test_a_node_that_ends_before_it_begins_is_reported_once(worker, events, order, clean):
    for _ in range(2):
        getattr(worker, order)()
    assert events.get() == ("own/0", "exit", Exit(clean=clean, description="ended before it began"))
    assert events.empty()


def test_a_node_that_cannot_be_started_says_why(worker, events, monkeypatch):
    server = ForkServer(preload="no_such_module")
    monkeypatch.setattr("callboard.launch.launchers.node_processes.forkserver._forkserver", server)
    worker.start()
    node, kind, how = events.get(timeout=10)
    server.stop()
    assert (node, kind, how.description, how.final) == ("own/0", "exit", "cannot be started", True)
    assert "No module named 'no_such_module'" in how.error


@pytest.mark.slow
def test_nothing_outlives_a_launcher_that_is_killed(train):
    run = train("--max-steps", 10_000_000, "--actors", 1, "--evaluator", "false", "--stop-return", "null")
    run.wait_for_steps(1)
    run.look()
    assert len(run.seen) >= 5
    run.process.kill()
    run.process.wait()
    run.wait_until(lambda: not run.leftovers(), timeout=10)
