"""What a node measures about itself."""

import os

import pytest

from callboard.launch.nodes.progress import Progress
from callboard.launch.nodes.reports.node_health import NodeProbe


def test_health_is_measured_over_the_last_seconds():
    now, waited = 0.0, {"data": 0.0}
    progress = Progress(clock=lambda: now)
    probe = NodeProbe(progress, lambda: waited, lambda: 7, clock=lambda: now)
    now = 1.0
    assert probe.measure() is None
    progress.waits("inference/0")
    now, waited = 4.0, {"data": 1.0, "replay to take data": 0.001}
    health = probe.measure()
    assert health.process == os.getpid() and health.memory > 2**20 and health.cpu >= 0
    assert health.activity == "waiting for inference/0" and health.weights == 7
    assert health.waiting == {"inference/0": 0.75, "data": 0.25}
    progress.works("acting")
    now = 8.0
    assert probe.measure().waiting == {}


def test_seconds_in_which_a_node_compiled_are_marked():
    now = 0.0
    progress = Progress(clock=lambda: now)
    probe = NodeProbe(progress, dict, lambda: None, clock=lambda: now)

    def starting_after(seconds):
        nonlocal now
        now += seconds
        return probe.measure().starting

    progress.waits("data")
    assert not starting_after(2.0)
    progress.works_slowly("in first learner step (compiling)")
    assert starting_after(2.0)
    progress.works("in learner step")
    assert starting_after(2.0)
    assert not starting_after(2.0)


def test_a_node_that_computes_uses_a_processor():
    now = 0.0
    probe = NodeProbe(Progress(), dict, lambda: None, clock=lambda: now)
    begun = os.times().user
    while os.times().user < begun + 0.05:
        pass
    now = 2.0
    assert probe.measure().cpu >= 0.02
    assert probe.measure() is None


def test_waiting_never_exceeds_the_time():
    now = 0.0
    waited = {"data": 0.0}
    probe = NodeProbe(Progress(), lambda: waited, lambda: None, clock=lambda: now)
    now, waited = 2.0, {"data": 2.1}
    assert probe.measure().waiting == {"data": pytest.approx(1.0)}
