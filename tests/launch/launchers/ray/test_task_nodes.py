"""The coordinator of Ray tasks: when it stops them."""

import threading

import pytest

from callboard.agents.sac import Sac
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.ray.task_nodes import TaskCoordinator
from callboard.launch.nodes.node import NodeContext
from callboard.launch.run_directory.layout import RunDirectory


@pytest.fixture
def coordinator(tmp_path, clock):
    context = NodeContext("coordinator/0", "c", threading.Event(), lambda kind, content: None, None)
    context.stop.set()  # `step` does not wait.
    experiment = Experiment(agent=Sac(), env="Pendulum-v1", evaluator=False)
    return TaskCoordinator(context, Run(experiment, experiment.layout(), RunDirectory(tmp_path)), clock)


def report(coordinator, name, sequence=1, steps=0):
    return coordinator.report(name, "a", sequence, [{"environment_steps": steps}])


def test_stops_on_request(coordinator):
    report(coordinator, "actor/0", steps=10)
    assert not coordinator.status()["stopping"]
    coordinator.request_stop("the loop has stopped it")
    assert coordinator.status()["stopping"] and coordinator.status()["environment_steps"] == 10
    assert report(coordinator, "actor/0", 2)[0]


def test_stops_when_a_learner_is_silent(coordinator, clock):
    # Without a learner that reports, a loop may do without one.
    clock.now += 1000.0
    coordinator.step()
    assert not coordinator.limits.stopping
    report(coordinator, "learner/0")
    clock.now += 59.0
    coordinator.step()
    assert not coordinator.limits.stopping
    report(coordinator, "learner/0", 2)
    clock.now += 59.0
    report(coordinator, "actor/0")
    coordinator.step()
    assert not coordinator.limits.stopping
    clock.now += 2.0
    coordinator.step()
    assert coordinator.limits.stopping
