"""Weights over a link that needs longer for them than the first timeout of a call."""

import threading

import courier
import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.weights import WeightClient
from callboard.launch.nodes.acting import weight_fetching
from callboard.launch.nodes.acting.weight_fetching import fetch_weights


class Handle:
    """A learner behind Courier."""

    name = "learner/0"

    def __init__(self, port):
        self.port = port
        self.timeouts = []

    def client(self, timeout):
        self.timeouts.append(timeout)
        return courier.Client(f"localhost:{self.port}", call_timeout=timeout)


@pytest.fixture
def slow_learner(monkeypatch):
    monkeypatch.setattr(weight_fetching, "CALL_SECONDS", 0.2)
    needs = threading.Event()

    def get_variables(have):
        needs.wait(1.0)
        return (0, 3), np.zeros(4, np.uint8)

    server = courier.Server()
    server.Bind("get_variables", get_variables)
    server.Bind("final_version", lambda: None)
    server.Start()
    yield server
    needs.set()
    server.Stop()


def test_a_fetch_may_take_longer_each_time_while_the_learner_answers(slow_learner):
    learner = Handle(slow_learner.port)
    weights = WeightClient(learner.client(0.2), [tf.Variable(0.0)])
    weights.call_seconds = 0.2
    fetched = [fetch_weights(weights, learner) for _ in range(4)]
    assert fetched[0] is False and fetched[-1] is True, "the weights need 1 s: 0.2, 0.4 and 0.8 s are too short"
    assert weights.apply() and weights.version.step == 3
    assert [timeout for timeout in learner.timeouts[1:] if timeout > 0.2] == pytest.approx([0.4, 0.8, 1.6])


def test_a_learner_that_does_not_answer_is_asked_with_the_first_timeout(slow_learner):
    learner = Handle(slow_learner.port)
    weights = WeightClient(learner.client(0.2), [tf.Variable(0.0)])
    weights.call_seconds = 3.2
    slow_learner.Stop()
    assert not fetch_weights(weights, learner) and weights.call_seconds == 0.2
