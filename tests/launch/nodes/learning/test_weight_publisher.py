"""Weights are copied when a client waits for them, and sent to clients that wait as soon as there are others."""

import contextlib
import threading

import numpy as np
import pytest
import tensorflow as tf

from callboard.agents.variables.finite_checks import NotFiniteError
from callboard.agents.variables.weights import Unpacking
from callboard.data import Version
from callboard.launch.nodes.learning.weight_publisher import WeightPublisher
from callboard.runtime.deadlines import Deadline


@pytest.fixture
def variables():
    return [tf.Variable(1.0), tf.Variable([2.0, 3.0])]


@pytest.fixture
def weights():
    published = WeightPublisher()
    published.begin(5)
    return published


def test_who_has_the_newest_is_answered_when_there_are_others(weights, variables):
    assert weights.get_variables(None, patience=0.0) is None
    weights.publish_if_changed(7, variables)
    version, packed = weights.get_variables(None, patience=0.0)
    assert version == (5, 7)
    np.testing.assert_array_equal(Unpacking(variables)(packed)[1], [2.0, 3.0])
    assert weights.get_variables(Version(5, 7), patience=0.01) is None

    with waiting(weights, Version(5, 7)) as answers:
        variables[0].assign(9.0)
        publish_when_due(weights, 8, variables)
    (answer,) = answers
    assert answer[0] == (5, 8)
    assert Unpacking(variables)(answer[1])[0] == 9.0


def test_weights_are_copied_only_where_a_client_waits(weights, variables):
    weights.publish_if_due(1, variables)
    assert weights.get_variables(None, patience=0.0) is None
    with waiting(weights, None):
        publish_when_due(weights, 2, variables)
    # The receiver may request the next, but does not yet.
    weights.publish_if_due(3, variables)
    assert weights.version() == Version(5, 2)
    weights.publish_if_changed(3, variables)
    assert weights.has(3) and weights.version() == Version(5, 3)


def test_while_steps_follow_at_once_few_of_them_are_copied(weights, variables):
    weights.publish_if_changed(0, variables)
    seen = 0
    for step in range(1, 300):
        with waiting(weights, weights.version(), patience=0.0005):
            weights.publish_if_due(step, variables)
            seen += weights.has(step)
    assert 1 <= seen < 200
    # While the learner waits for data, the newest are given out: actors may be waiting for them.
    weights.publish_if_changed(300, variables)
    assert weights.get_variables(None, patience=0.0)[0] == (5, 300)


def test_weights_are_published_every_so_many_steps_and_at_the_end(variables):
    weights = WeightPublisher(every=3)
    weights.begin(5)
    weights.publish_if_changed(10, variables)
    published = []
    for step in range(11, 18):
        with waiting(weights, weights.version(), patience=0.0):
            weights.publish_if_due(step, variables)
        published.append(weights.version().step)
    assert published == [10, 10, 13, 13, 13, 16, 16]
    weights.publish(17, variables)
    assert weights.version() == Version(5, 17)


def test_a_snapshot_does_not_follow_later_steps(weights, variables):
    weights.publish_if_changed(1, variables)
    for variable in variables:
        variable.assign(tf.zeros_like(variable))
    _, packed = weights.get_variables(None, patience=0.0)
    np.testing.assert_array_equal(Unpacking(variables)(packed)[1], [2.0, 3.0])


def test_weights_that_are_not_finite_are_not_served_and_end_the_learner(weights, variables):
    variables[1].assign([2.0, np.nan])
    weights.publish_if_changed(1, variables)
    assert not weights.due(1)
    # A client is the first to read them; the learner's thread then raises.
    assert weights.get_variables(None, patience=0.0) is None
    assert weights.due(1) and not weights.has(1)
    with pytest.raises(NotFiniteError, match="is NaN"):
        weights.raise_failure()
    with pytest.raises(NotFiniteError, match="is NaN"):
        weights.publish(2, variables)
    variables[1].assign([2.0, 3.0])
    weights.begin(6)
    assert weights.publish(2, variables) == Version(6, 2)


@contextlib.contextmanager
def waiting(weights, have, patience=60.0):
    """A client that waits within the context; yields a list that its answer is added to."""
    answers = []
    client = threading.Thread(target=lambda: answers.append(weights.get_variables(have, patience=patience)))
    client.start()
    try:
        yield answers
    finally:
        client.join(30.0)


def publish_when_due(weights, step, variables):
    deadline = Deadline(30.0)
    while not weights.has(step) and not deadline.has_passed:
        weights.publish_if_due(step, variables)
