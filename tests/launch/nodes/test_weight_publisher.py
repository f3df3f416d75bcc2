"""Weights are copied when they are requested, and sent to clients that wait as soon as there are others."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.weights import Unpacking
from callboard.data import Version
from callboard.launch.nodes.weight_publisher import WeightPublisher


@pytest.fixture
def variables():
    return [tf.Variable(1.0), tf.Variable([2.0, 3.0])]


@pytest.fixture
def weights():
    published = WeightPublisher()
    published.begin(5)
    return published


def test_who_has_the_newest_is_answered_when_there_are_others(weights, variables):
    assert weights.get(None, patience=0.0) is None
    weights.publish_if_due(7, variables)
    version, packed = weights.get(None, patience=0.0)
    assert version == (5, 7)
    np.testing.assert_array_equal(Unpacking(variables)(packed)[1], [2.0, 3.0])
    assert weights.get(Version(5, 7), patience=0.01) is None

    answers = []
    waiting = threading.Thread(target=lambda: answers.append(weights.get(Version(5, 7), patience=60.0)))
    waiting.start()
    variables[0].assign(9.0)
    weights.publish_if_due(8, variables)
    waiting.join(30.0)
    (answer,) = answers
    assert answer[0] == (5, 8)
    assert Unpacking(variables)(answer[1])[0] == 9.0


def test_weights_are_copied_on_request_only(weights, variables):
    weights.publish_if_due(1, variables)
    weights.publish_if_due(2, variables)
    # The receiver of the first version may request the next.
    assert weights.get(None, patience=0.0)[0] == (5, 1)
    weights.publish_if_due(3, variables)
    assert weights.get(Version(5, 1), patience=0.0)[0] == (5, 3)


def test_while_steps_follow_at_once_few_of_them_are_copied(weights, variables):
    seen = []
    for step in range(2000):
        weights.publish_if_due(step, variables, soon_again=True)
        snapshot = weights.get(None, patience=0.0)
        seen.append(snapshot[0][1])
    assert seen[0] == 0 and 1 <= len(set(seen)) < 1000
    # Before the learner waits, all is given out: actors may be waiting for it.
    weights.publish_if_due(2000, variables)
    assert weights.get(None, patience=0.0)[0] == (5, 2000)
