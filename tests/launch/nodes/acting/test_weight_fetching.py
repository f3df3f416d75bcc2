"""Nodes that act continue while the learner does not answer, and do not overload it."""

import threading

import pytest

from callboard.launch.nodes.acting.weight_fetching import fetch_pause, fetch_weights, wait_for_weights
from callboard.launch.nodes.node import NodeContext, Unreachable


class Learner:
    """A handle whose first clients do not reach the learner."""

    name = "learner/0"

    def __init__(self, failures):
        self.failures = failures

    def client(self, timeout):
        return self


class Weights:
    """Weights that arrive at once when the learner answers."""

    version = None

    def __init__(self, learner):
        self.learner = learner
        self.reconnected = 0

    def fetch(self, proceed):
        if self.learner.failures:
            self.learner.failures -= 1
            raise Unreachable("deadline exceeded")

    def reconnect(self, source):
        self.reconnected += 1

    def apply(self):
        self.version = (0, 0)
        return True


def context():
    return NodeContext("actor/0", "a", threading.Event(), lambda kind, content: None, None)


def test_a_learner_that_does_not_answer_is_called_at_its_new_address():
    learner = Learner(failures=1)
    weights = Weights(learner)
    assert not fetch_weights(weights, learner, context()) and weights.reconnected == 1
    assert fetch_weights(weights, learner, context()) and weights.reconnected == 1


def test_the_first_weights_are_waited_for_until_the_run_stops():
    learner = Learner(failures=3)
    weights = Weights(learner)
    assert wait_for_weights(weights, learner, context()) and weights.reconnected == 3
    stopped = context()
    stopped.stop.set()
    assert not wait_for_weights(Weights(Learner(failures=1)), learner, stopped)


@pytest.mark.parametrize(("nodes", "pause"), [(1, 0.01), (5, 0.01), (1000, 2.0)])
def test_all_nodes_together_fetch_at_most_five_hundred_times_per_second(nodes, pause):
    assert fetch_pause(nodes) == pytest.approx(pause)
